#include "runtime/apps/cards_json.h"

#include <utility>

namespace bloomery::apps {

using serve::Json;

Json CardsJson(std::span<const exec::VideoCard> cards) {
  Json list = Json::Array();
  for (const exec::VideoCard& card : cards) {
    Json holders = Json::Array();
    for (const exec::CardHolder& holder : card.holders.list) {
      holders.Append(Json::Object(
          {{"pid", holder.pid}, {"name", holder.name}, {"bytes", holder.bytes.value_or(0)}}));
    }
    Json json = Json::Object({{"index", card.index},
                              {"name", card.name},
                              {"sm", card.sm},
                              {"vram_total", card.total_bytes},
                              {"vram_free", card.free_bytes},
                              {"driver_cuda", card.driver_cuda},
                              {"holders", std::move(holders)}});
    if (!card.holders.untold.empty()) json.Set("holders_untold", card.holders.untold);
    list.Append(std::move(json));
  }
  return list;
}

}  // namespace bloomery::apps

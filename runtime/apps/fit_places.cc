#include "runtime/apps/fit_places.h"

#include <utility>

#include "runtime/exec/device_names.h"

namespace bloomery::apps {

bool IsAsMeant(const memory::Placement& placement, bool any_refused) {
  if (!placement.Fits() || placement.SplitUnasked()) return false;
  return !any_refused || !placement.stages.empty();
}

void OrderForContext(std::vector<memory::Placement>& refused) {
  std::vector<memory::Placement> ordered;
  for (const bool several : {true, false}) {
    for (const memory::Placement& place : refused) {
      if ((place.stages.size() > 1) == several) ordered.push_back(place);
    }
  }
  refused = std::move(ordered);
}

serve::ServeSettings SettingsOn(const memory::Placement& placement,
                                const serve::ServeSettings& settings) {
  serve::ServeSettings on = settings;
  if (placement.stages.empty()) {
    on.device = "none";
    on.card_shares.clear();
    return on;
  }
  // Cards that were named, or counted by their shares, are planned together and nothing else is.
  if (settings.device != "auto" || !settings.card_shares.empty()) return on;
  on.device = placement.device;
  on.fit_margins_bytes.clear();
  for (const uint32_t card : exec::CardsNamed(placement.device)) {
    on.fit_margins_bytes.push_back(card < settings.fit_margins_bytes.size()
                                       ? settings.fit_margins_bytes[card]
                                       : settings.fit_margin_bytes);
  }
  return on;
}

}  // namespace bloomery::apps

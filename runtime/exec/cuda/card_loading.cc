#include "runtime/exec/card_loading.h"

#include <algorithm>

#include "runtime/exec/cuda/card_load.h"
#include "runtime/exec/cuda/card_seat.h"

namespace bloomery::exec {

bool DriverIsThere() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
}

std::vector<std::string> CardLines() { return DescribeCards(RealDriver()); }

std::unique_ptr<Seat> LoadCardSeat(const model::ModelFile& model, const SeatSource& source,
                                   const SeatOptions& options) {
  const CardChoice choice = {
      .device = options.device,
      .together = options.placing.place == memory::Place::kSplit,
      .may_split = options.auto_splits && options.placing.place == memory::Place::kAuto,
      .shares = options.shares};
  SeatOptions with = options;
  return LoadOnCards<std::unique_ptr<Seat>>(
      RealDriver(), choice, [&](std::span<const CardInfo> cards, bool may_split) {
        if (options.delta_chunks) {
          throw Error(ErrorKind::kUsage,
                      "--delta-rule chunks is of the CPU, and the model would run "
                      "on " +
                          cards.front().name + ": take --delta-rule rows, or -dev none");
        }
        with.auto_splits = may_split;
        // A card without a layer is of no use, and nobody asked for it.
        const bool chosen = options.device == "auto" && options.shares.empty();
        const size_t most = chosen ? std::max(source.description->layers, 1U) : cards.size();
        return std::make_unique<CardSeat>(model, source, with,
                                          cards.first(std::min(cards.size(), most)));
      });
}

}  // namespace bloomery::exec

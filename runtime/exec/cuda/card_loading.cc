#include "runtime/exec/card_loading.h"

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
  SeatOptions with = options;
  const bool may_split = options.auto_splits && options.placing.place == memory::Place::kAuto;
  return LoadOnCardWholeFirst<std::unique_ptr<Seat>>(
      RealDriver(), options.device, may_split, [&](const CardInfo& card, bool splits) {
        if (options.delta_chunks) {
          throw Error(ErrorKind::kUsage,
                      "--delta-rule chunks is of the CPU, and the model would run "
                      "on " +
                          card.name + ": take --delta-rule rows, or -dev none");
        }
        with.auto_splits = splits;
        return std::make_unique<CardSeat>(model, source, with, card);
      });
}

}  // namespace bloomery::exec

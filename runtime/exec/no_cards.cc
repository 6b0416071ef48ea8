// A build without the CUDA back end.
#include "runtime/base/error.h"
#include "runtime/exec/card_loading.h"

namespace bloomery::exec {
namespace {

[[noreturn]] void Refuse() {
  throw Error(ErrorKind::kDevice,
              "this build has no CUDA back end: it was made without a CUDA compiler; run with "
              "--device none, or install one and build again");
}

}  // namespace

bool DriverIsThere() { return false; }

std::vector<std::string> CardLines() { Refuse(); }

std::vector<memory::CardRates> MeasureCards(const std::function<void()>& /*beside*/) { Refuse(); }

std::unique_ptr<Seat> LoadCardSeat(const model::ModelFile& /*model*/, const SeatSource& /*source*/,
                                   const SeatOptions& /*options*/) {
  Refuse();
}

}  // namespace bloomery::exec

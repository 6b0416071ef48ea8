// The cards of this machine and the memory, streams and graphs taken from one of them. Every handle
// is owned by a class here; failures of the driver become Errors that name what was tried. A card
// is used by one thread at a time (the passes' thread; loading has threads of its own that only
// read files). Nothing here knows models.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels-common/cuda/launch.h"
#include "runtime/base/error.h"
#include "runtime/exec/nvml.h"

namespace bloomery::exec {

// Oldest compute capability that the kernels are compiled for.
inline constexpr int32_t kComputeCapabilityMin = 80;

struct CardInfo {
  int32_t ordinal = 0;
  std::string name;                // "NVIDIA H200"
  std::string pci_bus_id;          // "00000000:65:00.0"
  int32_t compute_capability = 0;  // 90 for 9.0
  int32_t multiprocessors = 0;
  int32_t shared_bytes_max = 0;  // a block's, at most
  uint64_t total_bytes = 0;
  std::optional<uint64_t> free_bytes = {};  // when it was opened; none: it was not

  // "CUDA0", as flags name it.
  std::string Id() const { return "CUDA" + std::to_string(ordinal); }
  // "CUDA0: NVIDIA H200, compute capability 9.0, 139.7 GiB, 138.9 GiB free".
  std::string Line() const;
  VideoCard View(CardHolders holders) const;
};

// What finding and choosing a card asks the driver for. Tests put another in its place.
struct CardDriver {
  std::function<cudaError_t(int* version)> driver_version;
  std::function<cudaError_t(int* version)> runtime_version;
  std::function<cudaError_t(int* count)> count;
  std::function<cudaError_t(cudaDeviceProp* properties, int ordinal)> properties;
  // Makes the card this thread's.
  std::function<cudaError_t(int ordinal, size_t* free_bytes)> open;
  std::function<CardHolders(const CardInfo& card)> holders;
};
CardDriver RealDriver();

// The card has not the memory that was planned, or even for a plan: whoever catches it may add who
// holds it.
class CardMemoryError : public Error {
 public:
  explicit CardMemoryError(const std::string& message) : Error(ErrorKind::kNoMemory, message) {}
};

// Throws Error(kDevice) with one line that names what is there and what is needed: no driver, a
// driver older than this build's runtime, no card. Opens none: opening takes memory of a card.
std::vector<CardInfo> ListCards(const CardDriver& driver = RealDriver());

// Makes the card this thread's and asks what it has free. Throws Error(kDevice), or
// CardMemoryError where it has not even room for that.
void OpenCard(CardInfo* card, const CardDriver& driver = RealDriver());

// Of each card its Line() and who holds its memory, opening every one.
std::vector<std::string> DescribeCards(const CardDriver& driver);

// "CUDA<n>" among `cards`. Throws Error(kDevice) naming the cards there are.
const CardInfo& FindCard(std::span<const CardInfo> cards, const std::string& id);

// Throws Error(kDevice) naming `what`.
void CheckCuda(cudaError_t status, const std::string& what);
// The same for what takes memory of the card: CardMemoryError where that is what it lacks.
void CheckCardMemory(cudaError_t status, const std::string& what);
// The same for host memory that is pinned: Error(kNoMemory) where the system gives none.
void CheckPinning(cudaError_t status, uint64_t bytes, const std::string& what);

// Device memory of its own allocation; whole granules of 2 MiB. Move only.
class CardBuffer {
 public:
  CardBuffer() = default;
  CardBuffer(uint64_t bytes, const std::string& what);
  ~CardBuffer();
  CardBuffer(CardBuffer&& other) noexcept;
  CardBuffer& operator=(CardBuffer&& other) noexcept;
  CardBuffer(const CardBuffer&) = delete;
  CardBuffer& operator=(const CardBuffer&) = delete;

  static constexpr uint64_t kGranule = uint64_t{2} << 20;
  // What an allocation of `bytes` takes.
  static uint64_t Granules(uint64_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Host memory that the card copies from and to by itself.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(uint64_t bytes, const std::string& what);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class CardEvent {
 public:
  // cudaEventDefault: it measures, too; with cudaEventBlockingSync its waiter sleeps.
  explicit CardEvent(unsigned flags = cudaEventDisableTiming);
  ~CardEvent();
  CardEvent(const CardEvent&) = delete;
  CardEvent& operator=(const CardEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CardStream {
 public:
  // `first`: its launches go before those of other streams where both wait for room.
  explicit CardStream(bool first = false);
  ~CardStream();
  CardStream(const CardStream&) = delete;
  CardStream& operator=(const CardStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A captured stretch of a stream, ready to be launched again. Move only.
class CardGraph {
 public:
  CardGraph() = default;
  explicit CardGraph(cudaGraph_t captured);
  ~CardGraph();
  CardGraph(CardGraph&& other) noexcept;
  CardGraph& operator=(CardGraph&& other) noexcept;
  CardGraph(const CardGraph&) = delete;
  CardGraph& operator=(const CardGraph&) = delete;

  cudaGraphExec_t get() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// Opens the card, where the kernels can run on it; throws what OpenCard throws, and Error(kDevice).
void UseCard(CardInfo* card, const CardDriver& driver = RealDriver());

// Which cards a seat may lie on.
struct CardChoice {
  std::string device;      // "auto", or names: "CUDA0", "CUDA0,CUDA1"
  bool together = false;   // auto: on all that can be used at once, not on one of them
  bool may_split = false;  // with the host, where it does not fit whole
  // Of each card of `device` (auto: of the machine, every one): one that has none, or is beyond
  // them, is not opened. Empty: not given.
  std::span<const double> shares = {};
};

// What `load` makes on the cards that are named, all of them; for "auto" on the first card that
// holds it whole, else on as many together as can take their part, the fullest left out first,
// whole before split, else on the first that holds a split; with a warning in the log for what was
// tried before. What is refused for want of a card's memory names who holds it. The Error of the
// last refusal is thrown. `load` gets `may_split` as it counts for these cards.
template <class Loaded>
using LoadOn = std::function<Loaded(std::span<const CardInfo> cards, bool may_split)>;
template <class Loaded>
Loaded LoadOnCards(const CardDriver& driver, const CardChoice& choice, const LoadOn<Loaded>& load);

// Whether the i-th card of the choice may get layers.
inline bool HasShare(const CardChoice& choice, size_t i) {
  return choice.shares.empty() || (i < choice.shares.size() && choice.shares[i] > 0);
}

// Of one card, or of several together.
void WarnNotOn(std::span<const CardInfo> cards, const Error& error);

// For each card a line that names it, where it is one of several, and who holds its memory.
std::string HoldersOf(std::span<const CardInfo> cards, const CardDriver& driver);

// Those that a list names, in its order. Throws as FindCard does.
std::vector<CardInfo> FindCards(std::span<const CardInfo> cards, const std::string& list);

// Cards that are opened, by the driver's numbers; those that cannot be used are left out with a
// warning. Throws the last one's Error where none can.
std::vector<CardInfo> UsableCards(std::span<const CardInfo> cards, const CardDriver& driver);

template <class Loaded>
Loaded LoadOnCards(const CardDriver& driver, const CardChoice& choice, const LoadOn<Loaded>& load) {
  const std::vector<CardInfo> cards = ListCards(driver);
  const auto load_on = [&](std::vector<CardInfo> chosen, bool may_split) {
    try {
      for (size_t i = 0; i < chosen.size(); ++i) {
        if (HasShare(choice, i)) UseCard(&chosen[i], driver);
      }
      return load(chosen, may_split);
    } catch (const CardMemoryError& error) {
      throw Error(ErrorKind::kNoMemory, error.what() + HoldersOf(chosen, driver));
    }
  };
  if (choice.device != "auto") return load_on(FindCards(cards, choice.device), choice.may_split);
  // Shares count the machine's cards: with one left out they would be other cards'.
  if (cards.size() == 1 || !choice.shares.empty()) return load_on(cards, choice.may_split);
  // On the first of them where it can be; nothing where it can be on none.
  const auto on_one = [&](bool may_split) -> std::optional<Loaded> {
    for (const CardInfo& card : cards) {
      try {
        return load_on({card}, may_split);
      } catch (const Error& error) {
        const bool of_this_card =
            error.kind() == ErrorKind::kNoMemory || error.kind() == ErrorKind::kDevice;
        if (!of_this_card) throw;
        WarnNotOn({&card, 1}, error);
      }
    }
    return std::nullopt;
  };
  if (!choice.together) {
    if (std::optional<Loaded> loaded = on_one(false)) return std::move(*loaded);
  }
  // All together; where that cannot be, without the one that has least free: it may be too small
  // for its part.
  const std::vector<CardInfo> usable = UsableCards(cards, driver);
  std::exception_ptr refusal;
  for (const bool may_split : {false, true}) {
    if (may_split && !choice.may_split) break;
    std::vector<CardInfo> chosen = usable;
    do {
      try {
        return load_on(chosen, may_split);
      } catch (const Error& error) {
        // One of them may fail, or the model cannot be cut.
        const bool of_several = error.kind() == ErrorKind::kNoMemory ||
                                error.kind() == ErrorKind::kDevice ||
                                error.kind() == ErrorKind::kUnsupported;
        if (!of_several) throw;
        refusal = std::current_exception();
        WarnNotOn(chosen, error);
      }
      chosen.erase(std::ranges::min_element(chosen, {}, &CardInfo::free_bytes));
    } while (chosen.size() > 1);
  }
  if (choice.may_split && !choice.together) {
    if (std::optional<Loaded> loaded = on_one(true)) return std::move(*loaded);
  }
  std::rethrow_exception(refusal);
}

}  // namespace bloomery::exec

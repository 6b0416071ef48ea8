#include "runtime/exec/cuda/card.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/exec/device_names.h"
#include "runtime/memory/plan.h"

namespace bloomery::exec {
namespace {

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string CapabilityText(int32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// One line that says what is there and what is needed.
[[noreturn]] void RefuseDriver(const CardDriver& asked, cudaError_t status) {
  int driver = 0;
  int runtime = 0;
  asked.driver_version(&driver);
  asked.runtime_version(&runtime);
  if (driver == 0) {
    throw Error(ErrorKind::kDevice,
                "no NVIDIA driver is loaded here; a card needs one that offers CUDA " +
                    VersionText(runtime) + " (run without a card: --device none)");
  }
  if (status == cudaErrorInsufficientDriver) {
    throw Error(ErrorKind::kDevice, "the NVIDIA driver here offers CUDA " + VersionText(driver) +
                                        "; this build needs CUDA " + VersionText(runtime) +
                                        ": update the driver, or run with --device none");
  }
  throw Error(ErrorKind::kDevice, std::string("no card can be used: the driver answers '") +
                                      cudaGetErrorString(status) +
                                      "'; run with --device none to go on without one");
}

std::string BusId(const cudaDeviceProp& properties) {
  std::array<char, 32> text{};
  std::snprintf(
      text.data(), text.size(), "%08x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
      static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
  return text.data();
}

}  // namespace

std::string CardInfo::Line() const {
  return Id() + ": " + name + ", compute capability " + CapabilityText(compute_capability) + ", " +
         memory::FormatBytes(total_bytes) +
         (free_bytes ? ", " + memory::FormatBytes(*free_bytes) + " free" : "");
}

VideoCard CardInfo::View(CardHolders holders) const {
  return {.index = static_cast<uint32_t>(ordinal),
          .name = name,
          .sm = CapabilityText(compute_capability),
          .total_bytes = total_bytes,
          .free_bytes = free_bytes.value_or(0),
          .driver_cuda = "",
          .holders = std::move(holders)};
}

CardDriver RealDriver() {
  return {.driver_version = cudaDriverGetVersion,
          .runtime_version = cudaRuntimeGetVersion,
          .count = cudaGetDeviceCount,
          .properties = [](cudaDeviceProp* properties,
                           int ordinal) { return cudaGetDeviceProperties(properties, ordinal); },
          .open =
              [](int ordinal, size_t* free_bytes) {
                size_t total_bytes = 0;
                const cudaError_t status = cudaSetDevice(ordinal);
                return status == cudaSuccess ? cudaMemGetInfo(free_bytes, &total_bytes) : status;
              },
          .holders = [](const CardInfo& card) { return FindCardHolders(card.pci_bus_id); }};
}

std::vector<CardInfo> ListCards(const CardDriver& driver) {
  int count = 0;
  const cudaError_t status = driver.count(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // it would be reported again by the next call
    RefuseDriver(driver, status);
  }
  if (count == 0) RefuseDriver(driver, cudaErrorNoDevice);
  std::vector<CardInfo> cards;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    CheckCuda(driver.properties(&properties, i),
              "asking for the properties of card " + std::to_string(i));
    CardInfo card;
    card.ordinal = i;
    card.name = static_cast<const char*>(properties.name);
    card.pci_bus_id = BusId(properties);
    card.compute_capability = properties.major * 10 + properties.minor;
    card.multiprocessors = properties.multiProcessorCount;
    card.shared_bytes_max = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
    card.total_bytes = properties.totalGlobalMem;
    cards.push_back(std::move(card));
  }
  return cards;
}

void OpenCard(CardInfo* card, const CardDriver& driver) {
  size_t free_bytes = 0;
  CheckCardMemory(driver.open(card->ordinal, &free_bytes),
                  "opening " + card->Id() + " and asking for its memory");
  card->free_bytes = free_bytes;
}

std::vector<std::string> DescribeCards(const CardDriver& driver) {
  std::vector<std::string> lines;
  for (CardInfo& card : ListCards(driver)) {
    OpenCard(&card, driver);
    lines.push_back(card.Line() + driver.holders(card).Lines());
  }
  return lines;
}

const CardInfo& FindCard(std::span<const CardInfo> cards, const std::string& id) {
  std::string known;
  for (const CardInfo& card : cards) {
    if (card.Id() == id) return card;
    known += (known.empty() ? "" : "; ") + card.Line();
  }
  throw Error(ErrorKind::kDevice, "there is no card " + id + " here; there is " + known);
}

std::vector<CardInfo> FindCards(std::span<const CardInfo> cards, const std::string& list) {
  std::vector<CardInfo> found;
  for (const uint32_t card : CardsNamed(list)) {
    found.push_back(FindCard(cards, NameOfCards({&card, 1})));
  }
  return found;
}

std::vector<CardInfo> UsableCards(std::span<const CardInfo> cards, const CardDriver& driver) {
  std::vector<CardInfo> usable;
  std::exception_ptr refusal;
  for (CardInfo card : cards) {
    try {
      UseCard(&card, driver);
      usable.push_back(std::move(card));
    } catch (const Error& error) {
      WarnNotOn({&card, 1}, error);
      refusal = std::current_exception();
    }
  }
  if (usable.empty()) std::rethrow_exception(refusal);
  return usable;
}

void CheckCuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // it would be reported again by the next call
  throw Error(ErrorKind::kDevice, what + ": the card answers '" + cudaGetErrorString(status) + "'");
}

void CheckCardMemory(cudaError_t status, const std::string& what) {
  if (status != cudaErrorMemoryAllocation) return CheckCuda(status, what);
  cudaGetLastError();
  throw CardMemoryError(
      what + ": the card has not that much; another process may have taken it since the plan");
}

void WarnNotOn(std::span<const CardInfo> cards, const Error& error) {
  std::string ids;
  for (const CardInfo& card : cards) ids += (ids.empty() ? "" : ", ") + card.Id();
  LOG(WARNING) << "not on " << ids << (cards.size() > 1 ? " together: " : ": ") << error.what();
}

std::string HoldersOf(std::span<const CardInfo> cards, const CardDriver& driver) {
  std::string lines;
  for (const CardInfo& card : cards) {
    if (cards.size() > 1) lines += "\n" + card.Id() + ":";
    lines += driver.holders(card).Lines();
  }
  return lines;
}

void UseCard(CardInfo* card, const CardDriver& driver) {
  if (card->compute_capability < kComputeCapabilityMin) {
    throw Error(ErrorKind::kDevice, card->Line() + "; the kernels need compute capability " +
                                        CapabilityText(kComputeCapabilityMin) +
                                        " or newer (run without a card: --device none)");
  }
  OpenCard(card, driver);
}

CardBuffer::CardBuffer(uint64_t bytes, const std::string& what) : bytes_(Granules(bytes)) {
  if (bytes_ == 0) return;
  void* memory = nullptr;
  CheckCardMemory(cudaMalloc(&memory, bytes_),
                  "taking " + memory::FormatBytes(bytes_) + " of the card's memory for " + what);
  data_ = static_cast<std::byte*>(memory);
}

CardBuffer::~CardBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

CardBuffer::CardBuffer(CardBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CardBuffer& CardBuffer::operator=(CardBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void CheckPinning(cudaError_t status, uint64_t bytes, const std::string& what) {
  const std::string doing = "pinning " + memory::FormatBytes(bytes) + " of host memory for " + what;
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(ErrorKind::kNoMemory,
                doing + ": the system gives no such memory; free some of the host's");
  }
  CheckCuda(status, doing);
}

PinnedBuffer::PinnedBuffer(uint64_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes_ == 0) return;
  void* memory = nullptr;
  CheckPinning(cudaHostAlloc(&memory, bytes_, cudaHostAllocDefault), bytes_, what);
  data_ = static_cast<std::byte*>(memory);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CardEvent::CardEvent(unsigned flags) {
  CheckCuda(cudaEventCreateWithFlags(&event_, flags), "making an event");
}

CardEvent::~CardEvent() { cudaEventDestroy(event_); }

CardStream::CardStream(bool first) {
  int lowest = 0;
  int highest = 0;
  CheckCuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "making a stream");
  CheckCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, first ? highest : lowest),
            "making a stream");
}

CardStream::~CardStream() { cudaStreamDestroy(stream_); }

CardGraph::CardGraph(cudaGraph_t captured) {
  const cudaError_t status = cudaGraphInstantiate(&exec_, captured, 0);
  cudaGraphDestroy(captured);
  CheckCardMemory(status, "making a graph of a pass");
}

CardGraph::~CardGraph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

CardGraph::CardGraph(CardGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}

CardGraph& CardGraph::operator=(CardGraph&& other) noexcept {
  std::swap(exec_, other.exec_);
  return *this;
}

}  // namespace bloomery::exec

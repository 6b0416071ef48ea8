#include "runtime/exec/cuda/card_split.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels-common/cuda/read_rate.h"
#include "kernels-common/quant/cuda/card_form.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPart = 256;  // alignment of parts, and of what is copied into the room

uint64_t Aligned(uint64_t bytes) { return (bytes + kPart - 1) / kPart * kPart; }

// Of the room that copies go through into card form.
constexpr uint64_t kRoomBytes = uint64_t{16} << 20;

// Of both maps.
uint64_t MapBytes(const plugin::Description& description) {
  uint64_t experts = 0;
  for (const plugin::Bank& bank : description.banks) experts += bank.experts;
  return Aligned(2 * experts * sizeof(int32_t));
}

uint64_t PendingBytes(const plugin::Description& description) {
  return Aligned(description.banks.size() * sizeof(uint32_t));
}

// Of an expert's matrix on the card.
uint64_t FrameBytes(const plugin::Weight& weight) {
  const kernels::FormatTraits& format = *kernels::FindFormat(static_cast<int>(weight.type));
  if (format.activation_group == 0) return kernels::RowBytes(format, weight.ne[0]) * weight.ne[1];
  return kernels::cuda::CardBytes(format.ggml_type, weight.ne[1], weight.ne[0]);
}

// Experts of a bank that have no frame.
uint64_t Away(const plugin::Bank& bank, uint32_t frames) {
  return bank.experts - std::min(bank.experts, frames);
}

// Of the places for experts of one bank that come for a pass; 0 where none do.
uint64_t PlaceBytes(const plugin::Description& description, std::span<const uint32_t> banks,
                    std::span<const uint32_t> frames, int32_t rows_max) {
  uint64_t most = 0;
  for (const uint32_t i : banks) {
    const plugin::Bank& bank = description.banks[i];
    if (!CardSplit::HasPlaces(bank, rows_max)) continue;
    uint64_t bytes = 0;
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      bytes += Aligned(FrameBytes(description.weights[weight]) * Away(bank, frames[i]));
    }
    most = std::max(most, bytes);
  }
  return most;
}

// The largest matrix of an expert, and its place behind a multiple of kPart.
uint64_t RoomBytes(const plugin::Description& description) {
  uint64_t most = 0;
  for (const plugin::Bank& bank : description.banks) {
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      most = std::max(most, description.weights[weight].bytes / bank.experts);
    }
  }
  return Aligned(std::max(most, kRoomBytes)) + kPart;
}

std::vector<memory::PromptSharing::Bank> SharingBanks(const plugin::Description& description) {
  std::vector<memory::PromptSharing::Bank> banks;
  for (const plugin::Bank& bank : description.banks) banks.push_back({bank.experts, bank.used});
  return banks;
}

}  // namespace

plugin::Description OfFrames(const plugin::Description& description,
                             std::span<const uint32_t> frames) {
  plugin::Description of = description;
  for (size_t i = 0; i < description.banks.size(); ++i) {
    const plugin::Bank& bank = description.banks[i];
    const uint64_t kept = frames[i];
    for (const uint32_t index : {bank.gate, bank.up, bank.down}) {
      const plugin::Weight& whole = description.weights[index];
      plugin::Weight& weight = of.weights[index];
      weight.bytes = whole.bytes / bank.experts * kept;
      weight.ne[2] = kept;
      weight.ne[3] = 1;
    }
  }
  return of;
}

RegisteredMemory::RegisteredMemory(std::span<std::byte> memory) {
  if (memory.empty()) return;
  CheckCuda(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable),
            "registering the host's experts with the driver");
  data_ = memory.data();
}

RegisteredMemory::~RegisteredMemory() {
  if (data_ != nullptr) cudaHostUnregister(data_);
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

bool CardSplit::HasPlaces(const plugin::Bank& bank, int32_t rows_max) {
  return memory::PromptSharing::HasPlaces({bank.experts, bank.used}, rows_max);
}

SplitHost::SplitHost(const model::ModelFile& model, const plugin::Description& description,
                     const SeatOptions& options, std::span<const uint32_t> frames, int32_t rows_max)
    : experts_(model, description, options, frames, rows_max),
      registered_(experts_.memory()),
      page_memory_(PinnedBytes(description, rows_max), "the hand-off page") {
  // One address for every card: memory of the driver's own.
  void* seen = nullptr;
  CheckCuda(cudaHostGetDevicePointer(&seen, page_memory_.data(), 0), "mapping the hand-off page");
  page_ = HandOffPage(page_memory_.data(), static_cast<std::byte*>(seen), description, rows_max);
  experts_.Bind(page_);
}

void SplitHost::EndPass() const {
  if (std::atomic_ref(*page_.expired()).load(std::memory_order_acquire) == 0) return;
  throw HandOffError("the card has waited too long for the host's experts and gone on without");
}

uint64_t CardSplit::CardBytes(const plugin::Description& description,
                              std::span<const uint32_t> banks, std::span<const uint32_t> frames,
                              int32_t rows_max) {
  return MapBytes(description) + PendingBytes(description) + 2 * RoomBytes(description) +
         2 * PlaceBytes(description, banks, frames, rows_max);
}

uint64_t CardSplit::PinnedBytes(const plugin::Description& description) {
  return MapBytes(description);
}

CardSplit::CardSplit(const plugin::Description& description, const SeatOptions& options,
                     std::span<const uint32_t> banks, std::vector<uint32_t> frames,
                     int32_t rows_max, const kernels::cuda::Launch& launch, SplitHost* host)
    : description_(description),
      launch_(launch),
      banks_(banks.begin(), banks.end()),
      frames_(std::move(frames)),
      has_places_(description.banks.size(), false),
      deadline_(options.hand_off_deadline),
      hooks_(options.split_hooks),
      host_(host),
      memory_(CardBytes(description, banks, frames_, rows_max),
              "maps of experts and rooms for them"),
      map_twin_(MapBytes(description), "maps of experts"),
      sharing_(SharingBanks(description)) {
  for (const uint32_t bank : banks) {
    has_places_[bank] = HasPlaces(description.banks[bank], rows_max);
  }
  size_t first = 0;
  for (const plugin::Bank& bank : description.banks) {
    first_.push_back(first);
    first += bank.experts;
  }
  first_.push_back(first);
  maps_ = reinterpret_cast<int32_t*>(memory_.data());
  pending_ = reinterpret_cast<uint32_t*>(memory_.data() + MapBytes(description));
  rooms_[0].at = memory_.data() + MapBytes(description) + PendingBytes(description);
  rooms_[1].at = rooms_[0].at + RoomBytes(description);
  places_[0] = rooms_[1].at + RoomBytes(description);
  places_[1] = places_[0] + PlaceBytes(description, banks, frames_, rows_max);
  launch_.stream = packs_.get();
  launch_.dependent = false;
}

CardSplit::~CardSplit() {
  for (const CardStream* stream : {&copies_, &packs_, &stays_}) {
    cudaStreamSynchronize(stream->get());
  }
}

kernels::cuda::HandOff CardSplit::hand_off(size_t bank) const {
  // The host gives up first and says why; the card's own deadline is for a host that is gone.
  constexpr int kOfHosts = 4;
  kernels::cuda::HandOff hand_off;
  hand_off.ring = page().Seen(page().ring(bank));
  hand_off.ids = page().Seen(page().ids());
  hand_off.weights = page().Seen(page().weights());
  hand_off.input = page().Seen(page().input());
  hand_off.answer = page().Seen(page().answer(bank));
  hand_off.sums = page().Seen(page().sums());
  hand_off.pending = pending_ + bank;
  hand_off.expired = page().Seen(page().expired());
  hand_off.deadline_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(kOfHosts * deadline_).count());
  return hand_off;
}

void CardSplit::BeginPass(cudaStream_t stream) {
  prompt_sums_ = nullptr;
  if (!maps_changed_) return;
  auto* twin = reinterpret_cast<int32_t*>(map_twin_.data());
  for (size_t bank = 0; bank + 1 < first_.size(); ++bank) {
    std::ranges::copy(Map(bank), twin + first_[bank]);
  }
  CheckCuda(
      cudaMemcpyAsync(maps_, twin, first_.back() * sizeof(int32_t), cudaMemcpyHostToDevice, stream),
      "copying maps of experts to the card");
  maps_changed_ = false;
}

uint64_t CardSplit::FrameBytesOf(uint32_t weight) const {
  return FrameBytes(description_.weights[weight]);
}

uint64_t CardSplit::PlacePartBytes(size_t bank, uint32_t weight) const {
  return Aligned(FrameBytesOf(weight) * Away(description_.banks[bank], frames_[bank]));
}

int32_t CardSplit::FreeFrame(uint32_t bank) const {
  const std::span<const int32_t> map = Map(bank);
  const auto frames = static_cast<int32_t>(frames_[bank]);
  for (int32_t frame = 0; frame < frames; ++frame) {
    const bool coming = std::ranges::any_of(
        moves_, [&](const Move& move) { return move.bank == bank && move.frame == frame; });
    if (!coming && std::ranges::find(map, frame) == map.end()) return frame;
  }
  return -1;
}

void CardSplit::Set(uint32_t bank, int32_t expert, int32_t frame) {
  const std::lock_guard lock(mutex_);
  experts().Map(bank)[static_cast<size_t>(expert)] = frame;
  maps_changed_ = true;
}

std::vector<int32_t> CardSplit::Frames(size_t bank) const {
  const std::lock_guard lock(mutex_);
  const std::span<const int32_t> map = Map(bank);
  return {map.begin(), map.end()};
}

void CardSplit::BeginMove(const ExpertMove& move) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kInternal, "expert " + std::to_string(move.in) + " of bank " +
                                          std::to_string(move.bank) + " cannot move: " + why);
  };
  if (move.bank >= description_.banks.size()) refuse("there is no such bank");
  const auto experts = static_cast<int32_t>(description_.banks[move.bank].experts);
  if (move.in < 0 || move.in >= experts || move.out < -1 || move.out >= experts) {
    refuse("the bank has " + std::to_string(experts) + " experts");
  }
  if (Map(move.bank)[static_cast<size_t>(move.in)] >= 0) refuse("it lies on the card");
  if (std::ranges::any_of(moves_, [&](const Move& other) {
        return other.bank == move.bank && other.expert == move.in;
      })) {
    refuse("it is on its way");
  }
  if (moves_.size() >= limits::kExpertMovesMax) refuse("too many are under way");
  const int32_t frame =
      move.out < 0 ? FreeFrame(move.bank) : Map(move.bank)[static_cast<size_t>(move.out)];
  if (frame < 0) refuse(move.out < 0 ? "no frame is free" : "the other one has no frame");
  // From now on the host's: the frame may change under nobody.
  if (move.out >= 0) Set(move.bank, move.out, -1);
  Move made{.bank = move.bank,
            .expert = move.in,
            .frame = frame,
            .failed = hooks_.copy_fails && hooks_.copy_fails(),
            .done = std::make_unique<CardEvent>()};
  const plugin::Bank& bank = description_.banks[move.bank];
  if (!made.failed) {
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      const kernels::cuda::CardWeight matrix = card_weights_->Matrix(weight);
      auto* first = const_cast<std::byte*>(static_cast<const std::byte*>(matrix.data));
      CopyExperts(weight, {&move.in, 1},
                  first + static_cast<uint64_t>(frame) * matrix.expert_bytes);
    }
  }
  RecordCopies(made.done->get());
  moves_.push_back(std::move(made));
}

void CardSplit::RecordCopies(cudaEvent_t done) const {
  const std::string what = "copying experts to the card";
  CheckCuda(cudaEventRecord(copied_.get(), copies_.get()), what);
  CheckCuda(cudaStreamWaitEvent(packs_.get(), copied_.get(), 0), what);
  CheckCuda(cudaEventRecord(done, packs_.get()), what);
}

void CardSplit::CopyExperts(uint32_t weight, std::span<const int32_t> experts,
                            std::byte* to) const {
  const kernels::cuda::CardWeight matrix = card_weights_->Matrix(weight);
  if (matrix.format->activation_group == 0) return CopyRuns(weight, experts, to);
  const std::string what = "copying experts of '" + description_.weights[weight].name + "'";
  const uint64_t frame_bytes = FrameBytes(description_.weights[weight]);
  const uint64_t bytes = host_->experts().Matrix(weight, 0).size();
  const size_t most = std::max<uint64_t>(1, kRoomBytes / bytes);
  while (!experts.empty()) {
    const std::span<const int32_t> now = experts.first(std::min(most, experts.size()));
    const Room& room = rooms_[next_room_++ % rooms_.size()];
    // As it lies in host memory: copies are faster that way.
    const std::byte* from = host_->experts().Matrix(weight, now.front()).data();
    std::byte* const first = room.at + reinterpret_cast<uintptr_t>(from) % kPart;
    CheckCuda(cudaStreamWaitEvent(copies_.get(), room.free.get(), 0), what);
    CopyRuns(weight, now, first);
    CheckCuda(cudaEventRecord(room.full.get(), copies_.get()), what);
    CheckCuda(cudaStreamWaitEvent(packs_.get(), room.full.get(), 0), what);
    CheckCuda(kernels::cuda::ToCardForm(launch_, matrix.format->ggml_type, first, to, matrix.n,
                                        matrix.k, now.size()),
              what);
    CheckCuda(cudaEventRecord(room.free.get(), packs_.get()), what);
    to += now.size() * frame_bytes;
    experts = experts.subspan(now.size());
  }
}

void CardSplit::CopyRuns(uint32_t weight, std::span<const int32_t> experts, std::byte* to) const {
  while (!experts.empty()) {
    size_t run = 1;
    while (run < experts.size() && experts[run] == experts[run - 1] + 1) ++run;
    const std::span<const std::byte> first = host_->experts().Matrix(weight, experts.front());
    const uint64_t bytes = run * first.size();
    CheckCuda(cudaMemcpyAsync(to, first.data(), bytes, cudaMemcpyHostToDevice, copies_.get()),
              "copying experts of '" + description_.weights[weight].name + "'");
    to += bytes;
    experts = experts.subspan(run);
  }
}

memory::ResidencyRates CardSplit::MeasureRates() const {
  memory::ResidencyRates rates;
  const auto seated = std::ranges::find_if(banks_, [&](uint32_t i) { return frames_[i] > 0; });
  if (seated == banks_.end()) return rates;
  const uint32_t at = *seated;
  const plugin::Bank& bank = description_.banks[at];
  // Expert 0 goes once more where it lies; the best of a few, as the first finds the link asleep.
  constexpr int kTimes = 5;
  double copy_us = std::numeric_limits<double>::infinity();
  double begin_us = copy_us;
  for (int i = 0; i < kTimes; ++i) {
    const Clock::time_point start = Clock::now();
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      const kernels::cuda::CardWeight matrix = card_weights_->Matrix(weight);
      auto* first = const_cast<std::byte*>(static_cast<const std::byte*>(matrix.data));
      constexpr int32_t kFirst = 0;
      CopyExperts(weight, {&kFirst, 1},
                  first + static_cast<uint64_t>(Map(at).front()) * matrix.expert_bytes);
    }
    const std::chrono::duration<double, std::micro> begun = Clock::now() - start;
    begin_us = std::min(begin_us, begun.count());
    for (const CardStream* stream : {&copies_, &packs_}) {
      CheckCuda(cudaStreamSynchronize(stream->get()), "measuring the link");
    }
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    copy_us = std::min(copy_us, time.count());
  }
  rates.copy_us = copy_us;
  rates.begin_us = begin_us;
  const double host = experts().MeasureExpert() * 1e6;
  if (host > 0) rates.host_us = host;
  uint64_t bytes = 0;
  for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
    bytes += FrameBytes(description_.weights[weight]);
  }
  rates.card_us = static_cast<double>(bytes) / MeasureCard() * 1e6;
  return rates;
}

// Bytes a second of the card reading what lies there.
double CardSplit::MeasureCard() const {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  constexpr uint64_t kUnit = 16;
  const std::string what = "measuring how fast the card reads";
  const std::span<const std::byte> all = card_weights_->memory();
  const uint64_t bytes = std::min<uint64_t>(all.size(), kMost) / kUnit * kUnit;
  const CardEvent begin(cudaEventDefault);
  const CardEvent end(cudaEventDefault);
  CheckCuda(cudaEventRecord(begin.get(), packs_.get()), what);
  CheckCuda(kernels::cuda::ReadAll(launch_, all.data(), bytes), what);
  CheckCuda(cudaEventRecord(end.get(), packs_.get()), what);
  CheckCuda(cudaStreamSynchronize(packs_.get()), what);
  float milliseconds = 0;
  CheckCuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), what);
  return static_cast<double>(bytes) / std::max(1e-9, static_cast<double>(milliseconds) * 1e-3);
}

int32_t CardSplit::LandMoves(bool wait) {
  const Clock::time_point until = Clock::now() + deadline_;
  int32_t landed = 0;
  std::string failure;
  while (!moves_.empty()) {
    const Move& move = moves_.front();
    cudaError_t status = cudaEventQuery(move.done->get());
    while (wait && status == cudaErrorNotReady && Clock::now() < until) {
      status = cudaEventQuery(move.done->get());
    }
    if (status == cudaErrorNotReady && !wait) break;
    if (status == cudaErrorNotReady) {
      throw Error(ErrorKind::kDevice, "experts have not come to the card within " +
                                          std::to_string(deadline_.count()) + " ms");
    }
    if (status == cudaSuccess && !move.failed) {
      Set(move.bank, move.expert, move.frame);
      ++landed;
    } else {
      failure = "expert " + std::to_string(move.expert) + " of bank " + std::to_string(move.bank) +
                " has not come to the card: " +
                (move.failed ? "its copy was refused" : cudaGetErrorString(status));
    }
    moves_.pop_front();
  }
  if (!failure.empty()) throw Error(ErrorKind::kDevice, failure);
  return landed;
}

}  // namespace bloomery::exec

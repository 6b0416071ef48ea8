// Prompts over split banks: which experts come to the card, into which place, and which stay there.
#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/exec/cuda/card_split.h"

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

constexpr const char* kBringing = "bringing experts to the card";

}  // namespace

size_t CardSplit::Places(size_t bank) const {
  if (!has_places_[bank]) return 0;
  const uint32_t experts = description_.banks[bank].experts;
  return experts - std::min(experts, frames_[bank]);
}

uint64_t CardSplit::ExpertBytes(size_t bank) const {
  const plugin::Bank& described = description_.banks[bank];
  uint64_t bytes = 0;
  for (const uint32_t weight : {described.gate, described.up, described.down}) {
    bytes += experts().Matrix(weight, 0).size();
  }
  return bytes;
}

memory::ShareRates CardSplit::RatesOf(size_t bank) const {
  return share_rates_.Scaled(static_cast<double>(ExpertBytes(bank)) /
                             static_cast<double>(share_bytes_));
}

void CardSplit::SetShareRates(const std::optional<memory::ShareRates>& given) {
  const auto with = std::ranges::find(has_places_, true);
  if (with == has_places_.end()) return;
  const auto bank = static_cast<uint32_t>(with - has_places_.begin());
  share_bytes_ = ExpertBytes(bank);
  if (given) {
    share_rates_ = *given;
    return;
  }
  share_rates_ = experts().MeasureComputing(bank);
  share_rates_.copy_us = MeasureLink();
  const double sums = static_cast<double>(description_.banks[bank].width * sizeof(int64_t));
  share_rates_.answer_us = share_rates_.copy_us * sums / static_cast<double>(share_bytes_);
}

// An expert's time where some come one after another; the best of a few, as the first finds the
// link asleep.
double CardSplit::MeasureLink() {
  constexpr int kTimes = 3;
  constexpr size_t kExperts = 32;
  double best = std::numeric_limits<double>::infinity();
  for (size_t bank = 0; bank < frames_.size(); ++bank) {
    std::vector<int32_t> experts;
    for (size_t i = 0; i < std::min(kExperts, Places(bank)); ++i) {
      experts.push_back(static_cast<int32_t>(i));
    }
    if (experts.empty()) continue;
    const plugin::Bank& described = description_.banks[bank];
    for (int i = 0; i < kTimes; ++i) {
      const Clock::time_point begin = Clock::now();
      for (const uint32_t weight : {described.gate, described.up, described.down}) {
        CopyExperts(weight, experts, places_[0] + PlaceOf(bank, weight));
      }
      for (const CardStream* stream : {&copies_, &packs_}) {
        CheckCuda(cudaStreamSynchronize(stream->get()), "measuring the link");
      }
      best = std::min(best,
                      Micros(Clock::now() - begin).count() / static_cast<double>(experts.size()));
    }
    return best * static_cast<double>(share_bytes_) / static_cast<double>(ExpertBytes(bank));
  }
  return best;
}

uint64_t CardSplit::PlaceOf(size_t bank, uint32_t weight) const {
  const plugin::Bank& described = description_.banks[bank];
  uint64_t at = 0;
  for (const uint32_t part : {described.gate, described.up, described.down}) {
    if (part == weight) break;
    at += PlacePartBytes(bank, part);
  }
  return at;
}

kernels::cuda::CardWeight CardSplit::Streamed(kernels::cuda::CardWeight matrix, size_t bank,
                                              uint32_t weight, int32_t number) const {
  matrix.more = places_[static_cast<size_t>(number % 2)] + PlaceOf(bank, weight);
  matrix.frames = static_cast<int32_t>(frames_[bank]);
  matrix.expert_bytes = FrameBytesOf(weight);
  return matrix;
}

void CardSplit::BeginPrompt(std::span<const uint32_t> banks, int32_t rows, bool seats) {
  prompt_banks_ = banks;
  prompt_rows_ = rows;
  seats_ = seats;
  host_share_ = false;
  prompt_sums_ = nullptr;
  to_seat_.reset();
  if (!banks.empty()) SetOut(0);
}

// What is likely to be picked by many rows does not wait until it is known.
void CardSplit::SetOut(size_t number) {
  Coming& coming = coming_[number % 2];
  if (number >= 2) {
    for (const CardStream* stream : {&copies_, &packs_}) {
      CheckCuda(cudaStreamWaitEvent(stream->get(), coming.read.get(), 0), kBringing);
      if (!coming.seated) continue;
      CheckCuda(cudaStreamWaitEvent(stream->get(), coming.stayed.get(), 0), kBringing);
    }
  }
  const uint32_t bank = prompt_banks_[number];
  const std::span<const int32_t> map = Map(bank);
  coming.bank = bank;
  coming.frames.assign(map.begin(), map.end());
  // A move under way is waited for: its copies go before those that come now.
  for (const Move& move : moves_) {
    if (move.bank != bank || move.failed) continue;
    coming.frames[static_cast<size_t>(move.expert)] = move.frame;
  }
  coming.experts.clear();
  coming.seated = false;
  Bring(&coming, number,
        sharing_.Ahead(bank, RatesOf(bank), coming.frames, prompt_rows_, Places(bank)));
}

void CardSplit::Bring(Coming* coming, size_t number, std::span<const int32_t> experts) {
  if (experts.empty()) return;
  if (hooks_.stream_fails && hooks_.stream_fails()) {
    throw HandOffError("experts of layer " +
                       std::to_string(description_.banks[coming->bank].layer) +
                       " have not come to the card for a prompt: their copy was refused");
  }
  const plugin::Bank& described = description_.banks[coming->bank];
  const size_t first = coming->experts.size();
  for (const uint32_t weight : {described.gate, described.up, described.down}) {
    CopyExperts(weight, experts,
                places_[number % 2] + PlaceOf(coming->bank, weight) + first * FrameBytesOf(weight));
  }
  for (const int32_t expert : experts) {
    coming->frames[static_cast<size_t>(expert)] =
        static_cast<int32_t>(frames_[coming->bank] + coming->experts.size());
    coming->experts.push_back(expert);
  }
  const Micros takes(static_cast<double>(experts.size()) * RatesOf(coming->bank).copy_us);
  link_until_ =
      std::max(Clock::now(), link_until_) + std::chrono::duration_cast<Clock::duration>(takes);
}

void CardSplit::PicksPublished(cudaStream_t stream) const {
  CheckCuda(cudaEventRecord(picks_published_.get(), stream), "handing picks to the host");
}

void CardSplit::RowsPublished(cudaStream_t stream) const {
  CheckCuda(cudaEventRecord(rows_published_.get(), stream), "handing rows to the host");
}

void CardSplit::Await(const CardEvent& event, uint32_t bank,
                      const std::function<bool()>& check) const {
  const Clock::time_point until = Clock::now() + deadline_;
  for (;;) {
    const cudaError_t status = cudaEventQuery(event.get());
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) CheckCuda(status, "handing rows to the host");
    check();
    if (Clock::now() > until) {
      throw HandOffError("the card has not come to the experts of layer " +
                         std::to_string(description_.banks[bank].layer) + " within " +
                         std::to_string(deadline_.count()) + " ms");
    }
  }
}

void CardSplit::CountPicks(uint32_t bank) {
  const plugin::Bank& described = description_.banks[bank];
  counts_.assign(described.experts, 0);
  const size_t picks = static_cast<size_t>(prompt_rows_) * described.used;
  for (const int32_t id : std::span(page().ids(), picks)) {
    if (id < 0 || static_cast<uint32_t>(id) >= described.experts) {
      throw HandOffError("the card names expert " + std::to_string(id) + " among those of layer " +
                         std::to_string(described.layer));
    }
    ++counts_[static_cast<size_t>(id)];
  }
}

void CardSplit::Share(size_t number, const std::function<bool()>& check) {
  Coming& coming = coming_[number % 2];
  prompt_sums_ = nullptr;
  SeatSome();  // while the card comes to the picks
  Await(picks_published_, coming.bank, check);
  CountPicks(coming.bank);
  const Micros busy = link_until_ - Clock::now();
  const memory::PromptSharing::Division division = memory::PromptSharing::Divide(
      RatesOf(coming.bank), counts_, coming.frames, prompt_rows_, std::max(0.0, busy.count()),
      Places(coming.bank) - coming.experts.size());
  Bring(&coming, number, division.link);
  RecordCopies(coming.arrived.get());
  host_share_ = !division.host.empty();
  auto* twin = reinterpret_cast<int32_t*>(map_twin_.data()) + first_.back() + first_[coming.bank];
  std::ranges::copy(coming.frames, twin);
  sharing_.Count(coming.bank, counts_, prompt_rows_);
}

cudaError_t CardSplit::PublishMap(size_t bank, cudaStream_t stream) const {
  const size_t at = first_.back() + first_[bank];
  return cudaMemcpyAsync(maps_ + at, reinterpret_cast<const int32_t*>(map_twin_.data()) + at,
                         description_.banks[bank].experts * sizeof(int32_t), cudaMemcpyHostToDevice,
                         stream);
}

void CardSplit::AwaitArrived(size_t number, cudaStream_t stream) const {
  CheckCuda(cudaStreamWaitEvent(stream, coming_[number % 2].arrived.get(), 0), kBringing);
}

void CardSplit::EndStreamed(size_t number, cudaStream_t stream) {
  Coming& coming = coming_[number % 2];
  CheckCuda(cudaEventRecord(coming.read.get(), stream), kBringing);
  if (seats_) to_seat_ = number;
  if (number + 1 < prompt_banks_.size()) SetOut(number + 1);
}

// Of the bank that ended last: nobody reads its frames any more in this pass, and the next one
// finds its map changed.
void CardSplit::SeatSome() {
  if (!to_seat_) return;
  const size_t number = *std::exchange(to_seat_, std::nullopt);
  Coming* const coming = &coming_[number % 2];
  if (coming->experts.empty()) return;
  const std::string what = "keeping experts that came to the card";
  const plugin::Bank& described = description_.banks[coming->bank];
  for (const ExpertMove& move : sharing_.Seats(coming->bank, Map(coming->bank), coming->experts)) {
    if (!coming->seated) {
      CheckCuda(cudaStreamWaitEvent(stays_.get(), coming->read.get(), 0), what);
    }
    coming->seated = true;
    const int32_t frame = Map(move.bank)[static_cast<size_t>(move.out)];
    const auto place =
        static_cast<uint64_t>(coming->frames[static_cast<size_t>(move.in)]) - frames_[coming->bank];
    for (const uint32_t weight : {described.gate, described.up, described.down}) {
      const uint64_t bytes = FrameBytesOf(weight);
      const kernels::cuda::CardWeight matrix = card_weights_->Matrix(weight);
      auto* first = const_cast<std::byte*>(static_cast<const std::byte*>(matrix.data));
      CheckCuda(cudaMemcpyAsync(first + static_cast<uint64_t>(frame) * bytes,
                                places_[number % 2] + PlaceOf(coming->bank, weight) + place * bytes,
                                bytes, cudaMemcpyDeviceToDevice, stays_.get()),
                what);
    }
    Set(move.bank, move.out, -1);
    Set(move.bank, move.in, frame);
    seated_.push_back(move);
  }
  if (coming->seated) CheckCuda(cudaEventRecord(coming->stayed.get(), stays_.get()), what);
}

std::vector<ExpertMove> CardSplit::TakeSeated() {
  SeatSome();
  if (seated_.empty()) return {};
  CheckCuda(cudaStreamSynchronize(stays_.get()), "keeping experts that came to the card");
  return std::exchange(seated_, {});
}

void CardSplit::ComputeShare(size_t number, const std::function<bool()>& check) {
  prompt_sums_ = nullptr;
  if (!host_share_) return;
  const Coming& coming = coming_[number % 2];
  Await(rows_published_, coming.bank, check);
  if (experts().Compute(coming.bank, prompt_rows_, true, coming.frames)) {
    prompt_sums_ = page().Seen(page().sums());
  }
}

}  // namespace bloomery::exec

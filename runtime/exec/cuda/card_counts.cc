// What a seat on a card counts: passes and the bytes they read, and which experts the rows picked,
// of which the card keeps the sums and the ledger each row's.
#include <algorithm>
#include <mutex>

#include "runtime/exec/cuda/card_seat.h"

namespace bloomery::exec {

uint64_t CardSeat::PicksAt(size_t bank) const {
  uint64_t words = 0;
  for (size_t i = 0; i < bank; ++i) {
    words += static_cast<uint64_t>(limits_.rows_max) * description_.banks[i].used;
  }
  return words;
}

void CardSeat::RecordPicks(size_t rows) {
  PickLedger* const ledger = driver().ledger();
  if (ledger == nullptr) return;
  for (size_t bank = 0; bank < last_stage().pass(parts_.front().bucket).program.picks().size();
       ++bank) {
    const auto* picks = reinterpret_cast<const int32_t*>(picks_out_.data()) + PicksAt(bank);
    std::transform(picks, picks + rows * description_.banks[bank].used, ledger->Of(bank).begin(),
                   [](int32_t id) { return static_cast<uint16_t>(id); });
  }
}

// What one row picks is known; what several do, their launches count on the card.
void CardSeat::CountPass() {
  ++counters_.passes;
  for (const PassPart& part : parts_) {
    for (const auto& stage : stages_) {
      counters_.dispatches += stage->pass(part.bucket).program.steps().size();
    }
    counters_.weight_bytes_read += DenseBytes();
    if (part.rows != 1) continue;
    for (const plugin::Bank& bank : description_.banks) {
      if (bank.owner == BL_OWNER_MAIN) CountExperts(bank, bank.used, &counters_);
    }
  }
}

void CardSeat::CountExperts(const plugin::Bank& bank, uint64_t count, SeatCounters* to) const {
  uint64_t bytes = 0;
  for (const uint32_t part : {bank.gate, bank.up, bank.down}) {
    bytes += description_.weights[part].bytes / bank.experts * count;
  }
  to->experts_picked += count;
  to->expert_bytes += bytes;
  to->weight_bytes_read += bytes;
}

std::vector<uint64_t> CardSeat::FetchPicks() const {
  const std::lock_guard lock(picks_mutex_);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->Enter();
    std::vector<uint32_t> now = stages_[stage]->FetchPicks();
    for (size_t i = 0; i < now.size(); ++i) picks_[i] += now[i] - last_picks_[stage][i];
    last_picks_[stage] = std::move(now);
  }
  if (host_ == nullptr) return picks_;
  std::vector<uint64_t> all = picks_;
  for (size_t bank = 0; bank < description_.banks.size(); ++bank) {
    const std::vector<uint64_t> of_host = host_->experts().picks().Read(bank);
    const uint64_t first = CardPicks::At(description_, bank);
    for (size_t i = 0; i < of_host.size(); ++i) all[first + i] += of_host[i];
  }
  return all;
}

SeatCounters CardSeat::counters() const {
  SeatCounters counters = counters_;
  const std::vector<uint64_t> picks = FetchPicks();
  const uint64_t of_banks = CardPicks::At(description_, description_.banks.size());
  for (size_t i = 0; i < description_.banks.size(); ++i) {
    const uint64_t of_host = host_ == nullptr ? 0 : host_->experts().Distinct(i);
    CountExperts(description_.banks[i], picks[of_banks + i] + of_host, &counters);
  }
  if (host_ != nullptr) {
    const HostExperts::Counts& host = host_->experts().counts();
    counters.host_experts = host.experts;
    counters.host_bytes = host.bytes;
    counters.hand_offs = host.hand_offs;
    counters.host_seconds = host.seconds;
  }
  return counters;
}

}  // namespace bloomery::exec

#include "runtime/memory/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/memory/residency/sharing.h"

namespace bloomery::memory {
namespace {

// docs/measurements/card.md, one H200 that reads 4.2 TB/s, 1.92 GB a token, 48 layers.
// Beside reading: of 1.100 ms a token in one launch for all layers, and of 1.725 ms in six a layer,
// which split banks take (docs/measurements/split.md).
constexpr double kLayerSeconds = 11.7e-6;
constexpr double kSplitLayerSeconds = 24.7e-6;
// Rows in, logits out, the first launch.
constexpr double kPassSeconds = 80e-6;
// Keys and values of 4,096 rows: 403 MB in 0.36 ms more than at depth 0, of 4.2 TB/s.
constexpr double kCardContextShare = 0.27;
// Prompts: 20,164 rows a second of 2.72 G multiply-adds in passes of 512 rows, 28,620 in passes of
// 4,096, on 132 multiprocessors.
constexpr double kMacsOf512 = 416e9;
constexpr double kMacsOf4096 = 590e9;
// A bank of a prompt beside card, link and host: waiting for picks, the map and the rows, launches
// that begin only then (docs/measurements/split.md).
constexpr double kPromptBankSeconds = 100e-6;
// From one card to the next: the rows that cross, and the launch behind them (docs/measurements/
// card.md: 23 to 26 us of 1.1 and of 3.9 ms a pass).
constexpr double kHopSeconds = 25e-6;
// docs/measurements/cpu.md: decode reads weights at 0.78 to 0.97 of what the pool reads; a prompt
// has 0.75 of the multiply-adds of the kernels alone.
constexpr double kHostReadShare = 0.88;
constexpr double kHostMacShare = 0.75;

double Real(uint64_t value) { return static_cast<double>(value); }

// Distinct experts of `experts` that `rows` rows pick, `used` each, evenly.
double Distinct(const BankWork& bank, double rows) {
  return Real(bank.experts) * (1 - std::pow(1 - Real(bank.used) / Real(bank.experts), rows));
}

double CardMacs(const CardRates& card, int32_t rows) {
  const double at =
      std::clamp(std::log2(std::max(1.0, static_cast<double>(rows)) / 512) / 3, 0.0, 1.0);
  return card.multiprocessors * (kMacsOf512 + at * (kMacsOf4096 - kMacsOf512));
}

// Seconds of a pass by whom they are spent waiting for.
struct Times {
  double card = 0;
  double link = 0;
  double host_experts = 0;
  double host = 0;

  double total() const { return card + link + host_experts + host; }
  Times& operator+=(const Times& other) {
    card += other.card;
    link += other.link;
    host_experts += other.host_experts;
    host += other.host;
    return *this;
  }
  std::string By() const {
    if (host > 0) return "the host";
    if (link > std::max(card, host_experts)) return "the link";
    return host_experts > card ? "the host's experts" : "the card";
  }
};

Times HostPass(const SeatWork& work, const MachineRates& rates, double rows, double depth) {
  double bytes = Real(work.dense_bytes) + depth * Real(work.context_row_bytes);
  double macs = Real(work.dense_macs);
  for (const BankWork& bank : work.banks) {
    bytes += Distinct(bank, rows) * Real(bank.bytes);
    macs += Real(bank.used) * Real(bank.macs);
  }
  const double reading = bytes / (rates.host_read * kHostReadShare);
  const double computing = rows > 1 ? rows * macs / (rates.host_macs * kHostMacShare) : 0;
  return {.host = std::max(reading, computing)};
}

// What one card has to do.
struct StageWork : DenseWork {
  const PlacedStage* stage = nullptr;
  const CardRates* card = nullptr;
  bool whole = true;  // every expert of its banks is there
};

// By stage; empty where a card has no rates.
std::vector<StageWork> StagesOf(const Placement& placement, const SeatWork& work,
                                const MachineRates& rates) {
  std::vector<StageWork> stages;
  DenseWork left = work;  // what is no layer's is the last one's
  for (const PlacedStage& stage : placement.stages) {
    StageWork& of = stages.emplace_back();
    of.stage = &stage;
    const auto card = std::ranges::find(rates.cards, stage.device, &CardRates::id);
    if (card == rates.cards.end() || card->read <= 0) return {};
    of.card = &*card;
    for (const uint32_t bank : stage.banks) {
      of.whole = of.whole && placement.frames.at(bank) == placement.experts.at(bank);
    }
    if (&stage == &placement.stages.back()) {
      static_cast<DenseWork&>(of) = left;
      continue;
    }
    for (uint32_t layer = stage.layers.first; layer < stage.layers.end; ++layer) {
      const DenseWork& here = work.of_layers.at(layer);
      of.dense_bytes += here.dense_bytes;
      of.dense_macs += here.dense_macs;
      of.context_row_bytes += here.context_row_bytes;
    }
    left.dense_bytes -= of.dense_bytes;
    left.dense_macs -= of.dense_macs;
    left.context_row_bytes -= of.context_row_bytes;
  }
  return stages;
}

// One token.
Times CardStep(const Placement& placement, const SeatWork& work, const StageWork& of,
               const MachineRates& rates, double depth) {
  const bool split = placement.place == Place::kSplit;
  const CardRates& card = *of.card;
  Times times;
  times.card = Real(of.dense_bytes) / card.read +
               of.stage->layers.size() * (split ? kSplitLayerSeconds : kLayerSeconds) +
               depth * Real(of.context_row_bytes) / (card.read * kCardContextShare);
  for (const uint32_t i : of.stage->banks) {
    const BankWork& bank = work.banks.at(i);
    const double here = Real(placement.frames.at(i)) / Real(bank.experts);
    const double picked = Real(bank.used) * Real(bank.bytes);
    const double on_card = here * picked / card.read;
    double on_host = 0;
    if (here < 1) {
      const double some = 1 - std::pow(here, bank.used);  // whether any pick is the host's
      const double each = rates.experts.expert_us * Real(bank.bytes) / Real(rates.experts.bytes);
      on_host = 1e-6 * ((1 - here) * bank.used * each + some * rates.experts.dispatch_us) +
                some * card.hand_off;
    }
    times.card += on_card;
    times.host_experts += std::max(0.0, on_host - on_card);
  }
  return times;
}

// What an expert of the bank takes, by itself.
ShareRates SharesOf(const BankWork& bank, const HostExpertRates& experts, const CardRates& card) {
  const double bytes = Real(bank.bytes) / Real(experts.bytes);
  return {.copy_us = 1e6 * Real(bank.bytes) / card.to_card,
          .read_us = experts.read_us * bytes,
          .fixed_us = experts.fixed_us * bytes,
          .row_us = experts.row_us * bytes,
          .answer_us = 1e6 * Real(bank.width * sizeof(int64_t)) / card.to_card};
}

// Adds one bank of a pass of `rows` rows, of which the card takes `card_us` for its own part: from
// picks to picks. Before them some experts have set out already, beside the card's part; then link
// and host share the rest, by rates of each alone. Where both are at work both are slower.
void AddPromptBank(const BankWork& bank, uint32_t frames, int32_t rows, int32_t rows_max,
                   double card_us, const MachineRates& rates, const CardRates& card, Times* times) {
  times->card += 1e-6 * card_us;
  if (frames >= bank.experts) return;
  times->card += kPromptBankSeconds;
  const ShareRates alone = SharesOf(bank, rates.experts, card);
  const PromptSharing::Bank shape{bank.experts, bank.used};
  const size_t places = PromptSharing::HasPlaces(shape, rows_max) ? bank.experts - frames : 0;
  // Those with a frame, then those that have rows, then those that nobody picks.
  const auto picked = static_cast<uint32_t>(
      std::lround(Distinct(bank, rows) * (1 - Real(frames) / Real(bank.experts))));
  const auto each =
      static_cast<int32_t>(std::lround(Real(bank.used) * rows / Distinct(bank, rows)));
  std::vector<int32_t> of(bank.experts, kOnHost);
  std::vector<int32_t> counts(bank.experts, 0);
  for (uint32_t expert = 0; expert < frames; ++expert) of[expert] = 0;
  std::fill_n(counts.begin() + frames, picked, each);
  const std::vector<int32_t> ahead = PromptSharing({&shape, 1}).Ahead(0, alone, of, rows, places);
  for (const int32_t expert : ahead) of[static_cast<size_t>(expert)] = 0;
  const double before_us = alone.copy_us * Real(ahead.size());
  const PromptSharing::Division division = PromptSharing::Divide(
      alone, counts, of, rows, std::max(0.0, before_us - card_us), places - ahead.size());
  const bool host = !division.host.empty();
  const double slower = host && card.to_card_beside > 0 ? card.to_card / card.to_card_beside : 1;
  const double link_us = slower * (std::max(0.0, before_us - card_us / slower) +
                                   alone.copy_us * Real(division.link.size()));
  const double host_us = Real(division.host.size()) * alone.HostUs(each) *
                         (places > 0 ? rates.experts.beside_link : 1);
  const double sums_us = host ? rows * alone.answer_us : 0;
  (link_us > host_us ? times->link : times->host_experts) +=
      1e-6 * (std::max(link_us, host_us) + sums_us);
}

Times CardPrompt(const Placement& placement, const SeatWork& work, const StageWork& of,
                 const MachineRates& rates, int32_t rows) {
  const CardRates& card = *of.card;
  const double macs = CardMacs(card, rows);
  const auto count = static_cast<double>(rows);
  const double dense =
      std::max(count * Real(of.dense_macs) / macs, Real(of.dense_bytes) / card.read);
  const std::vector<uint32_t>& banks = of.stage->banks;
  Times times;
  if (banks.empty()) times.card = dense;
  for (const uint32_t i : banks) {
    const BankWork& bank = work.banks.at(i);
    const double computed = count * Real(bank.used) * Real(bank.macs);
    const double read = Distinct(bank, count) * Real(bank.bytes);
    // All of them: what comes over the link is computed here, too.
    const double experts = std::max(computed / macs, read / card.read);
    const double card_us = 1e6 * (dense / Real(banks.size()) + experts);
    AddPromptBank(bank, placement.frames.at(i), rows, placement.rows_max, card_us, rates, card,
                  &times);
  }
  return times;
}

}  // namespace

Prediction Predict(const Placement& placement, const SeatWork& work, const MachineRates& rates,
                   int32_t depth, int32_t prompt_rows) {
  Prediction prediction;
  const int32_t most = std::max(1, placement.rows_max);
  // Of a prompt's pass, and of each of its parts, which are under way at once.
  const int32_t whole = std::max(most, placement.batch_rows);
  const int32_t asked = prompt_rows > 0 ? std::min(prompt_rows, whole) : whole;
  const int32_t parts = (asked + most - 1) / most;
  const int32_t rows = (asked + parts - 1) / parts;
  const auto decode = [&](const Times& times) {
    prediction.decode = 1 / times.total();
    prediction.decode_by = times.By();
  };
  // The first part goes through all stages; the others follow in the time of the slowest.
  const auto prompt = [&](const Times& times, double slowest = 0) {
    prediction.prompt = parts * rows / (times.total() + (parts - 1) * slowest);
    prediction.prompt_by = times.By();
  };
  const bool host_reads = rates.host_read > 0;
  const bool host_computes = host_reads && rates.host_macs > 0;
  const bool host_experts = rates.experts.bytes > 0;
  if (placement.place == Place::kHost) {
    if (host_reads) decode(HostPass(work, rates, 1, depth));
    if (host_computes) prompt(HostPass(work, rates, rows, 0));
    return prediction;
  }
  const std::vector<StageWork> stages = StagesOf(placement, work, rates);
  if (stages.empty()) return prediction;
  const double hops = Real(stages.size() - 1) * kHopSeconds;
  Times step{.card = kPassSeconds + hops};
  Times pass{.card = hops};
  double slowest = 0;
  bool steps = true;
  bool passes = true;
  for (const StageWork& of : stages) {
    steps = steps && (of.whole || host_experts);
    passes = passes && of.card->multiprocessors > 0 &&
             (of.whole || (host_experts && of.card->to_card > 0));
  }
  for (const StageWork& of : stages) {
    if (steps) step += CardStep(placement, work, of, rates, depth);
    if (!passes) continue;
    const Times here = CardPrompt(placement, work, of, rates, rows);
    slowest = std::max(slowest, here.total());
    pass += here;
  }
  if (steps) decode(step);
  if (passes) prompt(pass, slowest);
  return prediction;
}

std::string PredictionLine(const Prediction& prediction, int32_t depth) {
  const auto rate = [](double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), value < 100 ? "%.1f" : "%.0f", value);
    return std::string(text.data());
  };
  std::string line;
  if (prediction.decode > 0) {
    line += "decode " + rate(prediction.decode) + " tok/s at depth " + std::to_string(depth) +
            " (by " + prediction.decode_by + ")";
  }
  if (prediction.prompt > 0) {
    line += (line.empty() ? "" : ", ") + std::string("prompt ") + rate(prediction.prompt) +
            " tok/s (by " + prediction.prompt_by + ")";
  }
  return line.empty() ? line : "predicted: " + line;
}

}  // namespace bloomery::memory

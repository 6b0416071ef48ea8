// What a pass takes by the rows of its windows, and a step of a model's own draft head: what drafts
// can bring on a card is decided by these; then answers of an engine without drafts and with those
// of each kind. Prints two tables a model.
//
//   gpu_bench_drafts MODEL [head] [cpu] [slots] [tokens of a draft, 3] [of an answer, 256]
//
// Ids of the first table are without a pattern, so every row picks experts of its own. Answers are
// greedy and must be the same with every kind.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/engine/engine.h"
#include "runtime/exec/seat.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/vocabulary.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

constexpr int kPasses = 41;
constexpr int32_t kBefore = 512;  // rows that a slot holds

class Ids {
 public:
  int32_t Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<int32_t>((state_ >> 8U) % 900) + 3;
  }

 private:
  uint32_t state_ = 1;
};

template <class Work>
double MedianMs(const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < kPasses; ++i) {
    const auto began = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    times.push_back(took.count());
  }
  std::ranges::nth_element(times, times.begin() + kPasses / 2);
  return times[kPasses / 2];
}

// Passes of a window of `rows` rows in each of `slots` slots, taken back after each.
double PassMs(exec::Seat& seat, int32_t slots, int32_t rows, Ids& ids) {
  std::vector<exec::PassRow> pass;
  return MedianMs([&] {
    pass.clear();
    for (int32_t slot = 0; slot < slots; ++slot) {
      for (int32_t i = 0; i < rows; ++i) {
        pass.push_back({.slot = slot,
                        .index = kBefore + i,
                        .token = ids.Next(),
                        .logits = true,
                        .keep = i + 1 < rows});
      }
    }
    seat.Run(pass);
    for (int32_t slot = 0; slot < slots; ++slot) seat.Cut(slot, kBefore);
  });
}

struct What {
  std::string path;
  bool head = false;
  std::string device = "CUDA0";
  int32_t slots = 1;
  int32_t tokens_max = 3;
  int32_t answer = 256;
};

LoadedSeat Load(const What& what, int32_t window, bool head) {
  exec::SeatOptions options;
  options.slots = what.slots;
  options.slot_context = std::max(1024, what.answer + 128);
  options.rows_max = kBefore;
  options.window_rows = window;
  options.drafts = head;
  options.device = what.device;
  return LoadThroughPlugin(what.path, options);
}

void MeasurePasses(const What& what) {
  const int32_t slots = what.slots;
  const LoadedSeat loaded = Load(what, limits::kWindowRowsMax, what.head);
  exec::Seat& seat = *loaded.seat;
  Ids ids;
  for (int32_t slot = 0; slot < slots; ++slot) {
    std::vector<exec::PassRow> rows;
    for (int32_t i = 0; i < kBefore; ++i) {
      rows.push_back({.slot = slot, .index = i, .token = ids.Next()});
    }
    seat.Run(rows);
  }
  std::printf("| %s, rows of a window | ms a pass | to one row | tokens a pass to break even |\n",
              what.path.c_str());
  std::printf("|---|---|---|---|\n");
  double one = 0;
  for (int32_t used = 1; used <= slots; used *= 2) {
    for (int32_t rows = 1; rows <= 8 && rows * used <= 8; ++rows) {
      const double ms = PassMs(seat, used, rows, ids);
      if (rows == 1) one = ms;
      std::printf("| %d of %d slots | %.3f | %.2f | %.2f |\n", rows, used, ms, ms / one,
                  ms / one * used);
    }
  }
  if (!what.head) return;
  for (const bool sure : {false, true}) {
    const double ms = MedianMs([&] {
      const exec::DraftRow row = {.slot = 0, .depth = 0, .token = ids.Next()};
      seat.RunDraft({&row, 1}, sure);
    });
    std::printf("| a step of the head%s | %.3f | | |\n", sure ? ", with its probability" : "", ms);
  }
}

using Tokens = std::vector<int32_t>;

// Texts without a pattern, of three words in turns, and of one line again and again.
std::vector<std::pair<const char*, Tokens>> Prompts() {
  Ids ids;
  std::vector<std::pair<const char*, Tokens>> prompts = {
      {"random", {}}, {"in turns", {}}, {"a line", {}}};
  Tokens line;
  for (int i = 0; i < 12; ++i) line.push_back(ids.Next());
  for (int i = 0; i < 48; ++i) {
    prompts[0].second.push_back(ids.Next());
    prompts[1].second.push_back(line[static_cast<size_t>(i % 3)]);
    prompts[2].second.push_back(line[static_cast<size_t>(i % 12)]);
  }
  return prompts;
}

struct Answers {
  std::vector<Tokens> tokens;
  double rate = 0;  // of all streams, while they were made
  int64_t drafted = 0, accepted = 0, made = 0;
};

// `slots` streams of one prompt, each after a token of its own.
Answers Ask(engine::Engine& engine, const Tokens& prompt, int32_t slots, int32_t tokens_most) {
  std::vector<std::shared_ptr<engine::Generation>> running;
  for (int32_t i = 0; i < slots; ++i) {
    engine::GenerateRequest request;
    request.prompt = prompt;
    request.prompt.insert(request.prompt.begin(), 50 + i);
    request.n_predict = tokens_most;
    request.sampling.temperature = 0;
    request.cache_prompt = false;
    running.push_back(engine.Submit(std::move(request)));
  }
  Answers answers;
  double longest = 0;
  for (const auto& each : running) {
    Tokens& tokens = answers.tokens.emplace_back();
    while (auto event = each->Pop()) {
      if (const auto* text = std::get_if<engine::Text>(&*event)) {
        tokens.insert(tokens.end(), text->tokens.begin(), text->tokens.end());
      } else if (const auto* finish = std::get_if<engine::Finish>(&*event)) {
        answers.drafted += finish->timings.draft_n;
        answers.accepted += finish->timings.draft_n_accepted;
        answers.made += finish->timings.predicted_n;
        longest = std::max(longest, finish->timings.predicted_ms);
      } else if (const auto* failed = std::get_if<engine::Failed>(&*event)) {
        throw Error(failed->kind, failed->message);
      }
    }
  }
  answers.rate = 1e3 * static_cast<double>(answers.made - slots) / longest;
  return answers;
}

void MeasureAnswers(const What& what) {
  std::printf("| streams | text | drafts | t/s | to off | drafted | accepted | of tokens |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  std::vector<engine::DraftKind> kinds = {engine::DraftKind::kOff, engine::DraftKind::kLookup};
  if (what.head) kinds.push_back(engine::DraftKind::kMtp);
  const auto prompts = Prompts();
  std::vector<Answers> off;
  for (const engine::DraftKind kind : kinds) {
    const bool none = kind == engine::DraftKind::kOff;
    const LoadedSeat loaded =
        Load(what, none ? 1 : what.tokens_max + 1, kind == engine::DraftKind::kMtp);
    const text::Tokenizer tokenizer(text::ReadVocabulary(loaded.model->metadata()));
    engine::EngineOptions options;
    options.draft = {.kind = kind, .tokens_max = what.tokens_max};
    engine::Engine engine(*loaded.seat, tokenizer, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::vector<Answers> rounds;
      for (int round = 0; round < 5; ++round) {
        rounds.push_back(Ask(engine, prompts[i].second, what.slots, what.answer));
      }
      std::ranges::sort(rounds, {}, &Answers::rate);
      const Answers& median = rounds[2];
      if (none) off.push_back(median);
      std::printf("| %d | %s | %s | %.0f | %.2f | %lld | %lld | %lld |%s\n", what.slots,
                  prompts[i].first, std::string(engine::DraftKindName(kind)).c_str(), median.rate,
                  median.rate / off[i].rate, static_cast<long long>(median.drafted),
                  static_cast<long long>(median.accepted), static_cast<long long>(median.made),
                  median.tokens == off[i].tokens ? "" : " NOT THE SAME TOKENS");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(
        stderr,
        "usage: gpu_bench_drafts MODEL [head] [cpu] [slots] [tokens of a draft] [of an answer]\n");
    return 64;
  }
  try {
    bloomery::test::What what = {.path = argv[1]};
    std::vector<int32_t> numbers;
    for (int i = 2; i < argc; ++i) {
      if (std::string_view(argv[i]) == "head") {
        what.head = true;
      } else if (std::string_view(argv[i]) == "cpu") {
        what.device = "cpu";
      } else {
        numbers.push_back(std::atoi(argv[i]));
      }
    }
    if (!numbers.empty()) what.slots = numbers[0];
    if (numbers.size() > 1) what.tokens_max = numbers[1];
    if (numbers.size() > 2) what.answer = numbers[2];
    bloomery::test::MeasurePasses(what);
    std::printf("\n");
    bloomery::test::MeasureAnswers(what);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

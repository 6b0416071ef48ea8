// What the engine's tests share: a vocabulary of single letters, a clock that is set by hand, a
// gate that holds passes, and a collector of a generation's events.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/engine.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/engine/fake_runner.h"

namespace bloomery::engine {

// Ids of the test vocabulary: 'a'..'z' are 0..25.
inline constexpr int32_t kSpace = 26, kNewline = 27, kDot = 28;
inline constexpr int32_t kC3 = 29, kA9 = 30;  // the two bytes of "é"
inline constexpr int32_t kAb = 31;            // "ab"
inline constexpr int32_t kTool = 32;          // <tool>, a control token
inline constexpr int32_t kEnd = 33;           // <|im_end|>, ends generation
inline constexpr int32_t kVocabulary = 34;

inline text::Tokenizer TestTokenizer() {
  text::VocabularyData data;
  data.pre = "qwen2";
  for (char c = 'a'; c <= 'z'; ++c) data.tokens.emplace_back(1, c);
  // Space, newline and the bytes C3 and A9 in the spelling of byte-level vocabularies.
  for (const char* token : {"\u0120", "\u010A", ".", "\u00C3", "\u00A9", "ab"}) {
    data.tokens.emplace_back(token);
  }
  data.tokens.emplace_back("<tool>");
  data.tokens.emplace_back("<|im_end|>");
  data.token_types.assign(data.tokens.size(), static_cast<int32_t>(text::TokenType::kNormal));
  data.token_types[kTool] = data.token_types[kEnd] =
      static_cast<int32_t>(text::TokenType::kControl);
  data.ids.eos = kEnd;
  return text::Tokenizer(data);
}

// "hello." → ids, one a character; `~` is the end token, `#` the tool token.
inline Tokens Ids(std::string_view text) {
  Tokens ids;
  for (const char c : text) {
    const int32_t id = c == ' '    ? kSpace
                       : c == '\n' ? kNewline
                       : c == '.'  ? kDot
                       : c == '~'  ? kEnd
                       : c == '#'  ? kTool
                                   : c - 'a';
    ids.push_back(id);
  }
  return ids;
}

inline std::string Letters(std::span<const int32_t> ids) {
  static constexpr std::string_view kNames = "abcdefghijklmnopqrstuvwxyz \n.??A#~";
  std::string text;
  for (const int32_t id : ids) text += kNames[static_cast<size_t>(id)];
  return text;
}

// A model that says `answer` after `prompt`, whatever slot it runs in; past the answer, the end
// token.
inline std::function<std::optional<int32_t>(const Tokens&)> Script(Tokens prompt, Tokens answer) {
  return [prompt = std::move(prompt),
          answer = std::move(answer)](const Tokens& history) -> std::optional<int32_t> {
    if (history.size() < prompt.size()) return std::nullopt;
    const size_t at = history.size() - prompt.size();
    return at < answer.size() ? answer[at] : kEnd;
  };
}

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_.load())); }
  void Advance(std::chrono::milliseconds by) { now_ += Duration(by).count(); }

 private:
  std::atomic<Duration::rep> now_{0};
};

// Holds every pass that a FakeRunner begins until it is let go.
class Gate {
 public:
  // For FakeRunner::before_run.
  void Enter() {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_ || permits_ > 0; });
    if (!open_) --permits_;
  }
  // Until `count` passes in all have begun.
  void AwaitEntered(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= count; });
  }
  void Permit(int passes) {
    Change([&] { permits_ += passes; });
  }
  void Open() {
    Change([&] { open_ = true; });
  }

 private:
  template <typename Action>
  void Change(Action action) {
    const std::lock_guard lock(mutex_);
    action();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int entered_ = 0;
  int permits_ = 0;
  bool open_ = false;
};

// Everything one choice said.
struct Heard {
  std::string text;
  Tokens tokens;
  std::vector<Text> pieces;
  std::optional<Finish> finish;
};

// Everything a generation said, checked for the order that request.h promises.
struct Collected {
  std::optional<Begin> begin;
  std::vector<Progress> progress;
  std::map<int32_t, Heard> choices;
  std::optional<Failed> failed;

  Heard& only() {
    EXPECT_EQ(choices.size(), 1u);
    return choices[0];
  }
  const Finish& finish(int32_t choice = 0) {
    EXPECT_TRUE(choices[choice].finish.has_value()) << (failed ? failed->message : "no finish");
    return *choices[choice].finish;
  }
};

inline void Collect(Collected& collected, Event event) {
  EXPECT_FALSE(collected.failed.has_value()) << "an event after Failed";
  if (auto* begin = std::get_if<Begin>(&event)) {
    EXPECT_FALSE(collected.begin.has_value());
    collected.begin = *begin;
  } else if (auto* progress = std::get_if<Progress>(&event)) {
    EXPECT_TRUE(collected.choices.empty()) << "progress after text";
    collected.progress.push_back(*progress);
  } else if (auto* text = std::get_if<Text>(&event)) {
    Heard& heard = collected.choices[text->choice];
    EXPECT_TRUE(collected.begin.has_value());
    EXPECT_FALSE(heard.finish.has_value()) << "text after Finish";
    EXPECT_FALSE(text->tokens.empty());
    heard.text += text->text;
    heard.tokens.insert(heard.tokens.end(), text->tokens.begin(), text->tokens.end());
    heard.pieces.push_back(std::move(*text));
  } else if (auto* finish = std::get_if<Finish>(&event)) {
    Heard& heard = collected.choices[finish->choice];
    EXPECT_FALSE(heard.finish.has_value());
    EXPECT_EQ(heard.tokens.size(), static_cast<size_t>(finish->tokens_predicted));
    heard.finish = std::move(*finish);
  } else {
    collected.failed = std::get<Failed>(std::move(event));
  }
}

// Takes events until the stream ends.
inline Collected Await(Generation& generation) {
  Collected collected;
  while (auto event = generation.Pop()) Collect(collected, std::move(*event));
  EXPECT_TRUE(generation.ended());
  return collected;
}

// A request of greedy text.
inline GenerateRequest Greedy(Tokens prompt, int32_t n_predict) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.n_predict = n_predict;
  request.sampling.temperature = 0;
  return request;
}

// A seat for tests; members in the order in which they must live.
struct Rig {
  explicit Rig(exec::SeatLimits limits = {}, EngineOptions options = {})
      : tokenizer(TestTokenizer()), runner(Defaults(limits)), options_(std::move(options)) {
    options_.clock = &clock;
  }

  // After the hooks of `runner` are set.
  Engine& Start() {
    engine = std::make_unique<Engine>(runner, tokenizer, options_);
    return *engine;
  }
  Collected Run(GenerateRequest request) {
    if (engine == nullptr) Start();
    return Await(*engine->Submit(std::move(request)));
  }
  // Unless said otherwise, an engine ends healthy, and its slots hold what the planes hold.
  ~Rig() {
    if (engine == nullptr || failure_expected) return;
    engine->Stop(std::chrono::milliseconds(0));
    EXPECT_EQ(engine->failure().value_or("none"), "none");
    for (const SlotInfo& slot : engine->SlotsSnapshot()) {
      EXPECT_EQ(slot.n_tokens, runner.length(slot.id));
      EXPECT_FALSE(slot.is_processing);
    }
  }

  static exec::SeatLimits Defaults(exec::SeatLimits limits) {
    if (limits.slots == 0) limits.slots = 1;
    if (limits.slot_context == 0) limits.slot_context = 128;
    if (limits.rows_max == 0) limits.rows_max = 16;
    limits.vocabulary = kVocabulary;
    return limits;
  }

  bool failure_expected = false;
  FakeClock clock;
  text::Tokenizer tokenizer;
  FakeRunner runner;
  std::unique_ptr<Engine> engine;

 private:
  EngineOptions options_;
};

// The greedy continuation, found without an engine: at most `n` tokens, the end token included.
inline Tokens GreedyReference(Tokens history, int32_t n) {
  Tokens generated;
  std::vector<float> logits(kVocabulary);
  while (static_cast<int32_t>(generated.size()) < n) {
    FakeLogits(history, logits);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    generated.push_back(static_cast<int32_t>(best));
    history.push_back(static_cast<int32_t>(best));
    if (best == kEnd) break;
  }
  return generated;
}

}  // namespace bloomery::engine

// Drafts in the engine: answers with them are those without, whatever was drafted, and what is
// rejected leaves nothing behind. The fake runner checks every row, cut and state.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/text/grammar/grammar.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

EngineOptions WithDrafts(DraftKind kind, int32_t tokens_max = 3) {
  EngineOptions options;
  options.draft = {.kind = kind, .tokens_max = tokens_max, .measured = false};
  return options;
}

exec::SeatLimits Windows(int32_t slots = 1, int32_t context = 128) {
  return {.slots = slots, .slot_context = context, .rows_max = 32, .window_rows = 8};
}

// A text that repeats itself with changes: some drafts are right, some wrong, some in part.
const char kAnswer[] = "the cat sat. the cat ran. the dog sat. the dog ran. the cat sat.";

void Speak(Rig& rig, const Tokens& prompt) {
  rig.runner.next = Script(prompt, Ids(kAnswer));
  rig.runner.with_state = true;
}

TEST(Drafts, ALookupsAnswerIsThatWithoutAndTakesFewerPasses) {
  const Tokens prompt = Ids("say ");
  Rig off(Windows());
  Speak(off, prompt);
  Rig on(Windows(), WithDrafts(DraftKind::kLookup));
  Speak(on, prompt);
  Collected plain = off.Run(Greedy(prompt, 100));
  Collected drafted = on.Run(Greedy(prompt, 100));
  EXPECT_EQ(drafted.only().text, plain.only().text);
  EXPECT_EQ(drafted.only().tokens, plain.only().tokens);
  EXPECT_EQ(drafted.finish().stop_type, StopType::kEos);
  const Timings& timings = drafted.finish().timings;
  EXPECT_GT(timings.draft_n, timings.draft_n_accepted);
  EXPECT_GT(timings.draft_n_accepted, 20);
  // A pass makes one token and those of the draft that were right.
  const auto predicted = static_cast<size_t>(drafted.finish().tokens_predicted);
  EXPECT_EQ(on.runner.passes.size(), predicted - static_cast<size_t>(timings.draft_n_accepted));
  EXPECT_EQ(off.runner.passes.size(), predicted);
  const DraftCounters counters = on.engine->ReadMetrics().drafts;
  EXPECT_EQ(counters.tokens, static_cast<uint64_t>(timings.draft_n));
  EXPECT_EQ(counters.accepted, static_cast<uint64_t>(timings.draft_n_accepted));
  uint64_t by_place = 0;
  for (const uint64_t at : counters.accepted_at) by_place += at;
  EXPECT_EQ(by_place, counters.accepted);
  EXPECT_EQ(off.engine->ReadMetrics().drafts.drafts, 0u);
}

TEST(Drafts, TheStreamIsThatWithoutPieceByPiece) {
  const Tokens prompt = Ids("say ");
  Rig off(Windows());
  Speak(off, prompt);
  Rig on(Windows(), WithDrafts(DraftKind::kLookup));
  Speak(on, prompt);
  constexpr int32_t kPieces = 50;  // of a longer stream some join where the reader is slow
  Collected plain = off.Run(Greedy(prompt, kPieces));
  Collected drafted = on.Run(Greedy(prompt, kPieces));
  ASSERT_EQ(drafted.only().pieces.size(), plain.only().pieces.size());
  for (size_t i = 0; i < plain.only().pieces.size(); ++i) {
    EXPECT_EQ(drafted.only().pieces[i].text, plain.only().pieces[i].text);
    EXPECT_EQ(drafted.only().pieces[i].tokens, plain.only().pieces[i].tokens);
  }
}

TEST(Drafts, ASampledAnswerIsThatOfTheSameSeedWithout) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const auto ask = [&](EngineOptions options) {
      Rig rig(Windows(), std::move(options));
      rig.runner.with_state = true;
      // Few tokens are likely, so that the text repeats itself and drafts happen.
      rig.runner.change_logits = [](const Tokens& history, std::vector<float>& logits) {
        std::fill(logits.begin() + 3, logits.end(), -50.0f);
        logits[static_cast<size_t>((history.back() + 1) % 3)] += 4;
      };
      GenerateRequest request;
      request.prompt = Ids("abc");
      request.n_predict = 60;
      request.sampling.seed = seed;
      request.sampling.temperature = 1.3F;
      request.sampling.repeat_penalty = 1.05F;
      request.sampling.n_probs = 2;
      Collected collected = rig.Run(std::move(request));
      EXPECT_EQ(collected.only().tokens.size(), 60u);
      const int32_t drafted = collected.finish().timings.draft_n;
      return std::pair(std::move(collected), drafted);
    };
    const auto [plain, none] = ask({});
    const auto [drafted, some] = ask(WithDrafts(DraftKind::kLookup));
    EXPECT_EQ(none, 0);
    EXPECT_GT(some, 0);
    EXPECT_EQ(drafted.choices.at(0).tokens, plain.choices.at(0).tokens) << "seed " << seed;
    EXPECT_EQ(drafted.choices.at(0).text, plain.choices.at(0).text);
  }
}

TEST(Drafts, AGrammarHoldsInsideAWindow) {
  const text::Tokenizer tokenizer = TestTokenizer();
  text::GrammarCompiler compiler(tokenizer);
  const auto ask = [&](EngineOptions options) {
    Rig rig(Windows(), std::move(options));
    rig.runner.with_state = true;
    GenerateRequest request = Greedy(Ids("go "), 80);
    request.grammar = compiler.FromGbnf("root ::= (\"abc\" | \"abd\")+ \".\"");
    return rig.Run(std::move(request));
  };
  Collected plain = ask({});
  Collected drafted = ask(WithDrafts(DraftKind::kLookup));
  EXPECT_EQ(drafted.only().text, plain.only().text);
  EXPECT_EQ(drafted.only().tokens, plain.only().tokens);
  EXPECT_GT(drafted.finish().timings.draft_n_accepted, 0);
}

TEST(Drafts, AStopStringEndsInsideAWindowAndTheRestIsCut) {
  const Tokens prompt = Ids("say ");
  for (const char* stop : {"n. the d", "dog s", "cat sat. the cat ran. t"}) {
    const auto ask = [&](EngineOptions options) {
      Rig rig(Windows(), std::move(options));
      Speak(rig, prompt);
      GenerateRequest request = Greedy(prompt, 100);
      request.stop = {stop};
      Collected collected = rig.Run(std::move(request));
      // The rig checks at its end that the slot holds what the planes hold.
      return std::pair(std::move(collected), rig.engine->SlotsSnapshot()[0].n_tokens);
    };
    auto [plain, held_plain] = ask({});
    auto [drafted, held] = ask(WithDrafts(DraftKind::kLookup));
    EXPECT_EQ(drafted.only().text, plain.only().text);
    EXPECT_EQ(drafted.finish().stopping_word, stop);
    EXPECT_EQ(held, held_plain);
  }
}

TEST(Drafts, NoRowIsMadeBeyondTheContextOrTheBudget) {
  const Tokens prompt = Ids("say ");
  for (int32_t context = 8; context < 40; ++context) {
    Rig rig(Windows(1, context), WithDrafts(DraftKind::kLookup));
    rig.runner.next = [](const Tokens& history) { return history.back() == 0 ? 1 : 0; };
    rig.runner.with_state = true;
    Collected collected = rig.Run(Greedy(prompt, -1));
    EXPECT_TRUE(collected.finish().truncated);
    EXPECT_EQ(collected.finish().tokens_predicted, context - 4);
  }
  for (int32_t budget = 1; budget < 20; ++budget) {
    Rig rig(Windows(), WithDrafts(DraftKind::kLookup));
    rig.runner.next = [](const Tokens& history) { return history.back() == 0 ? 1 : 0; };
    rig.runner.with_state = true;
    Collected collected = rig.Run(Greedy(prompt, budget));
    EXPECT_EQ(collected.finish().tokens_predicted, budget);
    EXPECT_EQ(rig.engine->SlotsSnapshot()[0].n_tokens, 4 + budget - 1);
  }
}

TEST(Drafts, FourSlotsAnswerAsEachAlone) {
  std::vector<Tokens> prompts = {Ids("a b a b a b "), Ids("one two one two "), Ids("xyz xyz xyz "),
                                 Ids("moon sun moon sun ")};
  const auto ask = [&](int32_t slots, EngineOptions options) {
    Rig rig(Windows(slots, 256), std::move(options));
    rig.runner.with_state = true;
    rig.runner.change_logits = [](const Tokens& history, std::vector<float>& logits) {
      // Mostly what stood seven tokens before, now and then something else.
      if (history.size() > 7 &&
          Mix(history.size() + static_cast<size_t>(history.back())) % 5 != 0) {
        logits[static_cast<size_t>(history[history.size() - 7])] += 20;
      }
      logits[kEnd] = -100;
    };
    Engine& engine = rig.Start();
    std::vector<std::shared_ptr<Generation>> running;
    for (const Tokens& prompt : prompts) running.push_back(engine.Submit(Greedy(prompt, 90)));
    std::vector<Tokens> answers;
    for (const auto& each : running) answers.push_back(Await(*each).only().tokens);
    return answers;
  };
  const std::vector<Tokens> alone = ask(1, {});
  EXPECT_EQ(ask(4, WithDrafts(DraftKind::kLookup)), alone);
  EXPECT_EQ(ask(4, WithDrafts(DraftKind::kLookup, 7)), alone);
  EXPECT_EQ(ask(3, WithDrafts(DraftKind::kLookup, 1)), alone);
}

// Rows beyond need not have the bits that they have alone (a card's passes of many rows).
TEST(Drafts, APassIsNotFilledWithDraftsBeyondTheRowsThatKeepTheirBits) {
  exec::SeatLimits limits = Windows(4, 128);
  limits.draft_pass_rows = 6;
  Rig rig(limits, WithDrafts(DraftKind::kLookup, 7));
  rig.runner.with_state = true;
  rig.runner.change_logits = [](const Tokens& history, std::vector<float>& logits) {
    logits[static_cast<size_t>((history.back() + 1) % 3)] += 40;  // 0 1 2 0 1 2 …
  };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> running;
  for (int i = 0; i < 4; ++i) running.push_back(engine.Submit(Greedy({0, 1, 2, 0, 1, 2}, 40)));
  for (const auto& each : running) EXPECT_EQ(Await(*each).only().tokens.size(), 40u);
  const uint64_t drafted = engine.ReadMetrics().drafts.tokens;
  engine.Stop(std::chrono::milliseconds(0));
  EXPECT_GT(drafted, 0u);
  size_t most = 0;
  for (const auto& pass : rig.runner.passes) {
    const bool prompts =
        std::ranges::any_of(pass, [](const exec::PassRow& row) { return !row.logits; });
    if (!prompts) most = std::max(most, pass.size());
  }
  EXPECT_EQ(most, 6u);
}

TEST(Drafts, TheHeadsDraftsAreStepsOfOneTokenAndAsDeepAsTheyMayBe) {
  const Tokens prompt = Ids("say ");
  exec::SeatLimits limits = Windows();
  limits.drafts = true;
  Rig rig(limits, WithDrafts(DraftKind::kMtp));
  Speak(rig, prompt);
  // Right about vowels and blanks, else a guess that never is.
  rig.runner.guess = [&](const Tokens& history) {
    const int32_t right = *rig.runner.next(history);
    return std::string_view("aeiou ").find(Letters(Tokens{right})[0]) != std::string_view::npos
               ? right
               : kTool;
  };
  Collected drafted = rig.Run(Greedy(prompt, 100));
  EXPECT_EQ(drafted.only().text, kAnswer);
  EXPECT_GT(drafted.finish().timings.draft_n_accepted, 5);
  EXPECT_GT(rig.runner.draft_steps, 3 * drafted.finish().timings.draft_n_accepted / 2);
}

TEST(Drafts, ADraftThatIsNotSureEndsThere) {
  const Tokens prompt = Ids("say ");
  exec::SeatLimits limits = Windows();
  limits.drafts = true;
  EngineOptions options = WithDrafts(DraftKind::kMtp);
  options.draft.p_min = 0.6;
  Rig rig(limits, options);
  Speak(rig, prompt);
  rig.runner.guess = [&](const Tokens& history) { return *rig.runner.next(history); };
  rig.runner.sure = [](int32_t depth) { return depth < 2 ? 0.9F : 0.5F; };
  Collected drafted = rig.Run(Greedy(prompt, 100));
  EXPECT_EQ(drafted.only().text, kAnswer);
  // All were right but what stood behind the end.
  EXPECT_LE(drafted.finish().timings.draft_n - drafted.finish().timings.draft_n_accepted, 2);
  size_t widest = 0;
  for (const auto& pass : rig.runner.passes) {
    if (pass[0].index >= 4) widest = std::max(widest, pass.size());
  }
  EXPECT_EQ(widest, 3u);
}

TEST(Drafts, AStepThatFailsCostsNoRequest) {
  const Tokens prompt = Ids("say ");
  exec::SeatLimits limits = Windows();
  limits.drafts = true;
  Rig rig(limits, WithDrafts(DraftKind::kMtp));
  Speak(rig, prompt);
  rig.runner.guess = [](const Tokens& history) -> int32_t {
    if (history.size() % 3 == 0) throw Error(ErrorKind::kInternal, "a step that fails");
    return 0;
  };
  EXPECT_EQ(rig.Run(Greedy(prompt, 100)).only().text, kAnswer);
}

TEST(Drafts, APassThatFailsLeavesTheSlotAsBefore) {
  const Tokens prompt = Ids("say ");
  Rig rig(Windows(), WithDrafts(DraftKind::kLookup));
  Speak(rig, prompt);
  bool failed = false;
  rig.runner.before_run = [&](std::span<const exec::PassRow> rows) {
    if (failed || rows.size() != 4 || rows[0].index < 30) return;
    failed = true;
    throw Error(ErrorKind::kInternal, "a pass that fails");
  };
  EXPECT_TRUE(rig.Run(Greedy(prompt, 100)).failed.has_value());
  EXPECT_TRUE(failed);
  EXPECT_EQ(rig.Run(Greedy(prompt, 100)).only().text, kAnswer);
}

TEST(Drafts, WhatCannotBeDoneIsRefusedByName) {
  const auto refusal = [](exec::SeatLimits limits, const EngineOptions& options) -> std::string {
    Rig rig(limits, options);
    rig.failure_expected = true;
    try {
      rig.Start();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  exec::SeatLimits narrow = Windows();
  narrow.window_rows = 1;
  EXPECT_NE(refusal(narrow, WithDrafts(DraftKind::kLookup)).find("--draft lookup"),
            std::string::npos);
  EXPECT_NE(refusal(Windows(), WithDrafts(DraftKind::kMtp)).find("--draft mtp"), std::string::npos);
  EXPECT_NE(refusal(Windows(), WithDrafts(DraftKind::kLookup, 8)).find("--draft-max"),
            std::string::npos);
  EngineOptions least = WithDrafts(DraftKind::kLookup);
  least.draft.tokens_min = 4;
  EXPECT_NE(refusal(Windows(), least).find("--draft-min"), std::string::npos);
}

}  // namespace
}  // namespace bloomery::engine

// Drafts over real models: answers with them are those without, a rejected row leaves nothing, and
// the draft head of the mini model is right often enough to matter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/vocabulary.h"
#include "tests/oracle/draft_reference.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

using Ids = std::vector<int32_t>;

std::string PlainPath() { return SourceDir() + "/tests/data/mini/qwen35moe/model.gguf"; }
std::string HeadPath() { return SourceDir() + "/tests/data/mini/qwen35moe/model-mtp.gguf"; }

exec::SeatOptions Options(int32_t slots, int32_t window, bool head) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context = 256;
  // On a card passes of more rows are a band.
  options.rows_max = std::getenv("BLOOMERY_TEST_DEVICE") != nullptr ? 8 : 64;
  options.threads = 2;
  options.window_rows = window;
  options.drafts = head;
  return options;
}

// What a slot holds, as bytes.
struct Held {
  std::vector<std::byte> rows, state;
  bool operator==(const Held&) const = default;
};
Held HeldBy(exec::Seat& seat, int32_t slot) {
  Held held;
  const int32_t length = seat.Length(slot);
  held.rows.resize(static_cast<size_t>(length) * seat.StateRowBytes());
  seat.ReadRows(slot, 0, length, held.rows);
  held.state.resize(seat.CheckpointBytes());
  if (!held.state.empty()) seat.ReadCheckpoint(slot, held.state);
  return held;
}

void RunWindow(exec::Seat& seat, int32_t slot, std::span<const int32_t> ids) {
  std::vector<exec::PassRow> rows;
  for (const int32_t id : ids) {
    rows.push_back({.slot = slot,
                    .index = seat.Length(slot) + static_cast<int32_t>(rows.size()),
                    .token = id,
                    .logits = true,
                    .keep = true});
  }
  rows.back().keep = false;
  seat.Run(rows);
}

const Ids kPrompt = {1, 500, 401, 77, 913, 12, 44, 600, 601, 602, 44, 600};

TEST(DraftWindow, AnyCutLeavesWhatRowsOneByOneLeave) {
  for (const bool head : {false, true}) {
    const LoadedSeat windowed = LoadThroughPlugin(HeadPath(), Options(2, 4, head));
    const LoadedSeat single = LoadThroughPlugin(HeadPath(), Options(2, 4, head));
    const Ids window = {601, 602, 45, 700};
    for (int32_t kept = 1; kept <= 4; ++kept) {
      for (exec::Seat* seat : {windowed.seat.get(), single.seat.get()}) {
        seat->Cut(0, 0);
        RunAll(*seat, kPrompt, 5);
      }
      const auto before = static_cast<int32_t>(kPrompt.size());
      // Twice, so that lanes are met in another order; the first is taken back altogether.
      RunWindow(*windowed.seat, 0, Ids{9, 8, 7});
      windowed.seat->Cut(0, before);
      RunWindow(*windowed.seat, 0, window);
      windowed.seat->Cut(0, before + kept);
      for (int32_t i = 0; i < kept; ++i) {
        RunWindow(*single.seat, 0, std::span(window).subspan(static_cast<size_t>(i), 1));
      }
      ASSERT_EQ(HeldBy(*windowed.seat, 0), HeldBy(*single.seat, 0)) << kept << " rows kept";
      // And so they go on.
      RunWindow(*windowed.seat, 0, Ids{33});
      RunWindow(*single.seat, 0, Ids{33});
      const auto a = windowed.seat->Logits(0);
      const auto b = single.seat->Logits(0);
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << kept << " rows kept";
    }
  }
}

TEST(DraftWindow, MoreRowsToKeepThanThereAreLanesAreRefused) {
  const LoadedSeat loaded = LoadThroughPlugin(PlainPath(), Options(1, 2, false));
  RunAll(*loaded.seat, kPrompt, 5);
  EXPECT_THROW(RunWindow(*loaded.seat, 0, Ids{1, 2, 3}), Error);
}

TEST(DraftHead, StepsLeaveNoTrace) {
  const LoadedSeat drafted = LoadThroughPlugin(HeadPath(), Options(2, 4, true));
  const LoadedSeat plain = LoadThroughPlugin(HeadPath(), Options(2, 4, true));
  for (exec::Seat* seat : {drafted.seat.get(), plain.seat.get()}) {
    RunAll(*seat, kPrompt, 7, 0);
    RunAll(*seat, Ids{1, 90, 91}, 7, 1);
  }
  const Held before = HeldBy(*drafted.seat, 0);
  Ids made;
  int32_t token = 601;
  for (int32_t depth = 0; depth < 3; ++depth) {
    const exec::DraftRow row = {.slot = 0, .depth = depth, .token = token};
    token = drafted.seat->RunDraft({&row, 1}, false)[0].token;
    made.push_back(token);
  }
  EXPECT_EQ(HeldBy(*drafted.seat, 0), before);
  const Ids next = {601, 602, 44};
  for (exec::Seat* seat : {drafted.seat.get(), plain.seat.get()}) RunWindow(*seat, 0, next);
  EXPECT_EQ(HeldBy(*drafted.seat, 0), HeldBy(*plain.seat, 0));
  // The same draft again, beside another slot's: row counts change no bit of it.
  drafted.seat->Cut(0, static_cast<int32_t>(kPrompt.size()));
  token = 601;
  for (int32_t depth = 0; depth < 3; ++depth) {
    const std::vector<exec::DraftRow> rows = {{.slot = 0, .depth = depth, .token = token},
                                              {.slot = 1, .depth = depth, .token = 5}};
    const auto got = drafted.seat->RunDraft(rows, true);
    token = got[0].token;
    EXPECT_EQ(token, made[static_cast<size_t>(depth)]);
    EXPECT_GT(got[0].probability, 0);
    EXPECT_LE(got[0].probability, 1);
  }
}

// Each step of drafts behind each row of a prompt, in passes of several rows and of one.
TEST(DraftHead, FollowsItsFormula) {
  exec::SeatOptions options = Options(1, 4, true);
  options.k_type = options.v_type = BL_F32;
  options.observe = {"hidden"};
  const LoadedSeat loaded = LoadThroughPlugin(HeadPath(), options);
  exec::Seat& seat = *loaded.seat;
  DraftReference reference(*loaded.model, 4);
  DraftReference::Vector before(reference.width());
  for (size_t at = 0; at < kPrompt.size();) {
    const size_t rows = std::min<size_t>(1 + at % 4, kPrompt.size() - at);
    RunWindow(seat, 0, std::span(kPrompt).subspan(at, rows));
    const exec::Observation hidden = seat.Observe("hidden");
    for (size_t row = 0; row < rows; ++row, ++at) {
      reference.Step(kPrompt[at], before);
      const auto state = hidden.Floats().subspan(row * reference.width(), reference.width());
      before.assign(state.begin(), state.end());
    }
    int32_t token = 600;
    DraftReference::Vector guess = before;
    for (int32_t depth = 0; depth < 3; ++depth) {
      guess = reference.Step(token, guess);
      const DraftReference::Vector logits = reference.Logits(guess);
      const exec::DraftRow row = {.slot = 0, .depth = depth, .token = token};
      const exec::Drafted got = seat.RunDraft({&row, 1}, true)[0];
      const auto best = std::ranges::max_element(logits);
      EXPECT_EQ(got.token, best - logits.begin()) << "row " << at << ", depth " << depth;
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit - *best);
      EXPECT_NEAR(static_cast<double>(got.probability), 1 / sum, 1e-4);
      token = got.token;
    }
    reference.Cut(3);
  }
}

TEST(DraftHead, AFileWithoutOneIsRefusedByName) {
  try {
    LoadThroughPlugin(PlainPath(), Options(1, 4, true));
    FAIL() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("--draft mtp"),
                                             testing::HasSubstr("no draft head"),
                                             testing::HasSubstr(PlainPath())));
  }
}

TEST(DraftHead, WhereItIsNotAskedForItIsNotLoaded) {
  const LoadedSeat with = LoadThroughPlugin(HeadPath(), Options(1, 1, false));
  const LoadedSeat without = LoadThroughPlugin(PlainPath(), Options(1, 1, false));
  EXPECT_EQ(with.seat->StateRowBytes(), without.seat->StateRowBytes());
  EXPECT_EQ(with.seat->DenseBytes(), without.seat->DenseBytes());
  const auto a = RunAll(*with.seat, kPrompt, 5);
  EXPECT_EQ(a, RunAll(*without.seat, kPrompt, 5));
  // Nor does it change a logit where it is.
  const LoadedSeat head = LoadThroughPlugin(HeadPath(), Options(1, 4, true));
  EXPECT_EQ(a, RunAll(*head.seat, kPrompt, 5));
}

// --- answers -------------------------------------------------------------------------------------

struct Answer {
  Ids tokens;
  std::string text;
  engine::Timings timings;
  engine::StopType stop = engine::StopType::kNone;
};

Answer Await(engine::Generation& generation) {
  Answer answer;
  while (auto event = generation.Pop()) {
    if (const auto* text = std::get_if<engine::Text>(&*event)) {
      answer.tokens.insert(answer.tokens.end(), text->tokens.begin(), text->tokens.end());
      answer.text += text->text;
    } else if (const auto* finish = std::get_if<engine::Finish>(&*event)) {
      answer.timings = finish->timings;
      answer.stop = finish->stop_type;
    } else if (const auto* failed = std::get_if<engine::Failed>(&*event)) {
      ADD_FAILURE() << failed->message;
    }
  }
  return answer;
}

class Server {
 public:
  Server(const std::string& path, int32_t slots, engine::DraftOptions draft)
      : seat_(LoadThroughPlugin(path, Options(slots, draft.kind == engine::DraftKind::kOff ? 1 : 4,
                                              draft.kind == engine::DraftKind::kMtp))),
        tokenizer_(text::ReadVocabulary(seat_.model->metadata())),
        grammars_(tokenizer_) {
    engine::EngineOptions options;
    options.draft = draft;
    options.cache.ram_bytes = uint64_t{16} << 20;
    engine_ = std::make_unique<engine::Engine>(*seat_.seat, tokenizer_, options);
  }

  engine::Engine& engine() { return *engine_; }
  text::GrammarCompiler& grammars() { return grammars_; }
  Ids Tokens(const std::string& text) const {
    return tokenizer_.Tokenise(text, {.parse_special = true});
  }

 private:
  LoadedSeat seat_;
  text::Tokenizer tokenizer_;
  text::GrammarCompiler grammars_;
  std::unique_ptr<engine::Engine> engine_;
};

const char* const kTexts[] = {
    "One morning Mia found a zebra near the saddle. Mia showed the zebra to",
    "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n",
    "1 2 3 4 5 1 2 3 4 5 1 2 3",
    "Tara laughed and gave the lion some bread. Tara laughed and gave the lion",
};

// Every kind of request that drafts could disturb, four at a time where there are the slots.
std::vector<Answer> AskAll(Server& server, bool together) {
  std::vector<Answer> answers;
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<std::shared_ptr<engine::Generation>> running;
    for (const char* text : kTexts) {
      engine::GenerateRequest request;
      request.prompt = server.Tokens(text);
      request.n_predict = 60;
      request.sampling.temperature = 0;
      if (kind == 1) {
        request.sampling.temperature = 0.9F;
        request.sampling.seed = 7;
        request.sampling.n_probs = 3;
      }
      if (kind == 2) request.grammar = server.grammars().FromGbnf("root ::= [a-z .]+ \"!\"");
      if (kind == 3) {
        request.stop = {"and the", " th"};
        request.n_predict = -1;  // to the context's end where no stop comes
      }
      running.push_back(server.engine().Submit(std::move(request)));
      if (!together) answers.push_back(Await(*running.back()));
    }
    if (!together) continue;
    for (const auto& each : running) answers.push_back(Await(*each));
  }
  return answers;
}

struct Drafted {
  int64_t tokens = 0, accepted = 0;
};
Drafted ExpectSame(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  Drafted drafted;
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << "answer " << i << ": " << want[i].text;
    EXPECT_EQ(got[i].text, want[i].text);
    EXPECT_EQ(got[i].stop, want[i].stop);
    drafted.tokens += got[i].timings.draft_n;
    drafted.accepted += got[i].timings.draft_n_accepted;
  }
  return drafted;
}

class DraftAnswers : public testing::TestWithParam<engine::DraftKind> {};

TEST_P(DraftAnswers, AreThoseWithout) {
  const std::string path = HeadPath();
  Server off(path, 1, {});
  const std::vector<Answer> want = AskAll(off, false);
  Server one(path, 1, {.kind = GetParam(), .measured = false});
  const Drafted alone = ExpectSame(AskAll(one, false), want);
  EXPECT_GT(alone.accepted, 20);
  EXPECT_GT(alone.tokens, alone.accepted);
  Server four(path, 4, {.kind = GetParam(), .measured = false});
  ExpectSame(AskAll(four, true), want);
  Server measured(path, 4, {.kind = GetParam()});
  ExpectSame(AskAll(measured, true), want);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DraftAnswers,
                         testing::Values(engine::DraftKind::kLookup, engine::DraftKind::kMtp),
                         [](const auto& kind) {
                           return std::string(engine::DraftKindName(kind.param));
                         });

TEST(DraftHead, IsRightMoreOftenThanNot) {
  Server server(HeadPath(), 1, {.kind = engine::DraftKind::kMtp, .measured = false});
  const Drafted drafted = [&] {
    Drafted sum;
    for (const char* text : kTexts) {
      engine::GenerateRequest request;
      request.prompt = server.Tokens(text);
      request.n_predict = 100;
      request.sampling.temperature = 0;
      const Answer answer = Await(*server.engine().Submit(std::move(request)));
      sum.tokens += answer.timings.draft_n;
      sum.accepted += answer.timings.draft_n_accepted;
    }
    return sum;
  }();
  const engine::DraftCounters counters = server.engine().ReadMetrics().drafts;
  RecordProperty("drafts", static_cast<int>(counters.drafts));
  for (int place = 0; place < 3; ++place) {
    RecordProperty("accepted_at_" + std::to_string(place),
                   static_cast<int>(counters.accepted_at[static_cast<size_t>(place)]));
  }
  // Of the first token of a draft.
  EXPECT_GT(counters.accepted_at[0] * 2, counters.drafts);
  EXPECT_EQ(counters.accepted, static_cast<uint64_t>(drafted.accepted));
}

}  // namespace
}  // namespace bloomery::test

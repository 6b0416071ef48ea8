#include "runtime/apps/seat_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <future>

#include "runtime/model/gguf.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using testing::HasSubstr;

constexpr const char* kMini = BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf";

serve::ServeSettings Settings() {
  serve::ServeSettings settings;
  settings.plugin_dirs = {PLUGIN_DIR};
  settings.threads = 1;
  settings.ubatch = 4;
  return settings;
}

TEST(SlotContext, IsWhatWasAskedForAndNeverMoreThanTheTrainedOne) {
  EXPECT_EQ(SlotContext(0, 4096), 4096);
  EXPECT_EQ(SlotContext(100, 4096), 100);
  EXPECT_EQ(SlotContext(4096, 4096), 4096);
  EXPECT_EQ(SlotContext(4097, 4096), 4096);
  EXPECT_EQ(SlotContext(4097, 0), 4097);
  EXPECT_THAT(test::RefusalOf([] { SlotContext(0, 0); }).message, HasSubstr("--ctx-size"));
}

TEST(SlotContext, ATrainedOneThatNoSlotCanHaveIsTheFilesFault) {
  const auto refusal = test::RefusalOf([] { SlotContext(0, uint64_t{1} << 31); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_NE(refusal.message.find("context_length"), std::string::npos);
  EXPECT_EQ(SlotContext(0, INT32_MAX), INT32_MAX);
  EXPECT_EQ(SlotContext(64, uint64_t{1} << 31), 64);
}

TEST(ChatSurface, ThePluginsPreTokenizerFillsWhatTheFileLeavesOpenAndNothingElse) {
  plugin::ChatSurface chat;
  chat.pre_tokenizer = "qwen2";
  chat.stop_ids = {3};
  for (const char* open : {"", "default"}) {
    text::VocabularyData vocabulary;
    vocabulary.pre = open;
    ApplyChatSurface(chat, vocabulary);
    EXPECT_EQ(vocabulary.pre, "qwen2");
    EXPECT_EQ(vocabulary.stop_ids, std::vector<text::TokenId>{3});
  }
  text::VocabularyData vocabulary;
  vocabulary.pre = "llama-bpe";
  ApplyChatSurface(chat, vocabulary);
  EXPECT_EQ(vocabulary.pre, "llama-bpe");
  vocabulary.pre = "";
  ApplyChatSurface({}, vocabulary);
  EXPECT_EQ(vocabulary.pre, "");
}

// The mini vocabulary's own split takes digits one by one; this one takes what is no letter whole.
TEST(ChatSurface, ThePluginsExpressionsSplitTextWhereTheFileNamesASplitThatNobodyKnows) {
  text::VocabularyData vocabulary =
      text::ReadVocabulary(model::OpenGguf(RealFileSystem(), kMini).metadata());
  const std::string text = "a man, a plan";
  const auto own = text::Tokenizer(vocabulary).Tokenise(text, {});
  plugin::ChatSurface chat;
  chat.pre_patterns = {R"(\p{L})"};
  ApplyChatSurface(chat, vocabulary);
  EXPECT_EQ(text::Tokenizer(vocabulary).Tokenise(text, {}), own);  // the file's split is known
  vocabulary.pre = "nobodys";
  ApplyChatSurface(chat, vocabulary);
  const text::Tokenizer tokenizer(vocabulary);
  const auto letters = tokenizer.Tokenise(text, {});
  EXPECT_GT(letters.size(), own.size());
  EXPECT_EQ(tokenizer.Detokenise(letters, text::SpecialText::kShown), text);
  chat.pre_patterns = {R"(\p{L})", "(a"};
  ApplyChatSurface(chat, vocabulary);
  const test::Refusal refusal = test::RefusalOf([&] { text::Tokenizer{vocabulary}; });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("'(a' that text is split by does not compile, at byte 2"));
}

TEST(ChatSurface, ThePluginsStopIdsEndAnAnswerAndOneOutsideTheVocabularyIsRefused) {
  text::VocabularyData vocabulary =
      text::ReadVocabulary(model::OpenGguf(RealFileSystem(), kMini).metadata());
  ASSERT_FALSE(text::Tokenizer(vocabulary).IsEog(5));
  plugin::ChatSurface chat;
  chat.stop_ids = {5};
  ApplyChatSurface(chat, vocabulary);
  EXPECT_TRUE(text::Tokenizer(vocabulary).IsEog(5));
  chat.stop_ids = {1 << 30};
  ApplyChatSurface(chat, vocabulary);
  const test::Refusal refusal = test::RefusalOf([&] { text::Tokenizer{vocabulary}; });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("the plugin's stop id 1073741824"));
}

TEST(ServedModel, AFailedTokenizerEndsTheLoadAtItsNextStep) {
  std::promise<TextParts> making;
  int shown = 0;
  const auto progress =
      UnlessFailed(making.get_future().share(), [&](uint64_t, uint64_t) { ++shown; });
  progress(1, 3);
  EXPECT_EQ(shown, 1);
  making.set_exception(std::make_exception_ptr(Error(ErrorKind::kBadModel, "no merges")));
  const test::Refusal refusal = test::RefusalOf([&] { progress(2, 3); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_EQ(refusal.message, "no merges");
  EXPECT_EQ(shown, 1);
  std::promise<TextParts> made;
  made.set_value({});
  UnlessFailed(made.get_future().share(), [&](uint64_t, uint64_t) { ++shown; })(3, 3);
  EXPECT_EQ(shown, 2);
}

TEST(ServedModel, ATemplateThatDoesNotParseIsRefusedInEveryLoadMode) {
  for (const exec::LoadMode mode : {exec::LoadMode::kRead, exec::LoadMode::kMap}) {
    serve::ServeSettings settings = Settings();
    settings.context = 64;
    settings.load_mode = mode;
    settings.chat_template = "{% if";
    const test::Refusal refusal =
        test::RefusalOf([&] { const ServedModel model(settings, kMini, "", ""); });
    EXPECT_THAT(refusal.message, HasSubstr("template"));
  }
}

TEST(ServedModel, HonoursThePluginsChatSurface) {
  serve::ServeSettings settings = Settings();
  settings.context = 64;
  const ServedModel model(settings, kMini, "", "");
  const serve::Seat& seat = model.seat();
  EXPECT_EQ(seat.chat_template->marks().open, "<think>");
  EXPECT_EQ(seat.chat_template->marks().close, "</think>");
  EXPECT_EQ(seat.chat.tool_syntax, "hermes");
  EXPECT_THAT(seat.chat.recommended_sampling.Text(), HasSubstr("\"top_k\":20"));
  EXPECT_TRUE(seat.inexact_operators.empty());
}

TEST(ServedModel, ALargeContextIsCappedAtTheTrainedOneInEverySlot) {
  serve::ServeSettings settings = Settings();
  settings.context = 1000000;
  settings.parallel = 2;
  const ServedModel model(settings, kMini, "", "");
  const int64_t trained = model.seat().model.context_trained;
  EXPECT_GT(trained, 0);
  EXPECT_EQ(model.seat().engine->limits().slot_context, trained);
  settings.context = 128;
  EXPECT_EQ(ServedModel(settings, kMini, "", "").seat().engine->limits().slot_context, 64);
  settings.context = 0;
  EXPECT_EQ(ServedModel(settings, kMini, "", "").seat().engine->limits().slot_context, trained);
}

TEST(ServedModel, APlanOverTheBudgetIsRefusedWithItsTerms) {
  serve::ServeSettings settings = Settings();
  settings.host_budget_bytes = 1024;
  const test::Refusal refusal =
      test::RefusalOf([&] { const ServedModel model(settings, kMini, "", ""); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, HasSubstr("planes k"));
  EXPECT_THAT(refusal.message, HasSubstr("mapped, held as page cache"));
}

// What a start would plan first that it does not refuse: context of a slot and bytes of the host.
struct FirstPlan {
  int32_t context = 0;
  uint64_t bytes = 0;
  uint64_t row_bytes = 0;
};

FirstPlan PlanOf(const serve::ServeSettings& settings) {
  struct Stop {};
  FirstPlan plan;
  LoadWatch watch;
  watch.planned = [&](const PlannedModel& planned) {
    plan = {planned.options.slot_context, planned.placement.host.total(),
            planned.work.context_row_bytes};
    if (planned.placement.Fits()) throw Stop();
  };
  bool planned_only = false;
  try {
    const ServedModel model(settings, kMini, "", "", watch);
  } catch (const Stop&) {
    planned_only = true;
  }
  EXPECT_TRUE(planned_only);
  return plan;
}

TEST(ServedModel, AContextThatWasNotGivenShrinksToWhatFits) {
  serve::ServeSettings settings = Settings();
  settings.device = "none";
  settings.load_mode = exec::LoadMode::kRead;
  settings.fit_context = 8;
  const FirstPlan trained = PlanOf(settings);
  ASSERT_GT(trained.context, 512);
  ASSERT_GT(trained.row_bytes, 0U);
  settings.host_budget_bytes = trained.bytes;
  EXPECT_EQ(PlanOf(settings).context, trained.context);
  // A byte less than 512 rows fewer: the next step below.
  settings.host_budget_bytes = trained.bytes - 512 * trained.row_bytes - 1;
  const FirstPlan fitted = PlanOf(settings);
  EXPECT_EQ(fitted.context, (trained.context - 513) / 256 * 256);
  EXPECT_LE(fitted.bytes, settings.host_budget_bytes);
  settings.parallel = 2;
  EXPECT_LE(PlanOf(settings).context, fitted.context / 2);
  // What was given stays, and so does the trained one where nothing is to be fitted.
  settings.parallel = 1;
  settings.fit = false;
  EXPECT_EQ(test::RefusalOf([&] { PlanOf(settings); }).kind, ErrorKind::kNoMemory);
  settings.fit = true;
  settings.context = trained.context;
  EXPECT_EQ(test::RefusalOf([&] { PlanOf(settings); }).kind, ErrorKind::kNoMemory);
}

TEST(ServedModel, WhereTheLeastContextDoesNotFitThatIsRefusedWithItsTerms) {
  serve::ServeSettings settings = Settings();
  settings.device = "none";
  settings.load_mode = exec::LoadMode::kRead;
  settings.fit_context = 100;
  settings.host_budget_bytes = 1000;
  const test::Refusal refusal = test::RefusalOf([&] { PlanOf(settings); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, testing::AllOf(HasSubstr("weights"), HasSubstr("planes k"),
                                              HasSubstr("budget of 1000 B")));
}

}  // namespace
}  // namespace bloomery::apps

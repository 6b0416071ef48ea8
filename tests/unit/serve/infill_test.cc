// /infill: the order of its parts, what is cut where it is too long, and what it needs.
#include <gmock/gmock.h>

#include "runtime/model/gguf.h"
#include "runtime/serve/infill_prompt.h"
#include "runtime/text/vocabulary.h"
#include "tests/support/refusal.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;
using text::TokenId;

// Ordinary tokens of the mini vocabulary in the roles of the special ones.
constexpr TokenId kPrefix = 1901;
constexpr TokenId kSuffix = 1902;
constexpr TokenId kMiddle = 1903;
constexpr TokenId kRepo = 1904;
constexpr TokenId kSeparator = 1905;

class InfillTest : public ServedTest {
 protected:
  InfillTest() {
    const auto model = model::OpenGguf(RealFileSystem(),
                                       BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf");
    data_ = text::ReadVocabulary(model.metadata());
  }
  void UseTokens(bool files) {
    data_.ids.fim_prefix = kPrefix;
    data_.ids.fim_suffix = kSuffix;
    data_.ids.fim_middle = kMiddle;
    if (files) {
      data_.ids.fim_repo = kRepo;
      data_.ids.fim_separator = kSeparator;
    }
    tokenizer_ = std::make_unique<text::Tokenizer>(data_);
  }
  std::vector<TokenId> Prompt(const std::string& body, const InfillLimits& limits) {
    const auto json = ParseJson(body, "body");
    return InfillPrompt(Fields(json, "body"), *tokenizer_, limits);
  }
  std::vector<TokenId> Ids(std::string_view text) { return tokenizer_->Tokenise(text); }
  static void Append(std::vector<TokenId>& all, const std::vector<TokenId>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  text::VocabularyData data_;
};

TEST_F(InfillTest, PrefixPromptSuffixAndThenTheMiddleIsAskedFor) {
  UseTokens(false);
  const std::string body =
      R"({"input_prefix":"The capital","input_suffix":" Tokyo.","prompt":" of"})";
  std::vector<TokenId> expected{kPrefix};
  Append(expected, Ids("The capital"));
  Append(expected, Ids(" of"));
  expected.push_back(kSuffix);
  Append(expected, Ids(" Tokyo."));
  expected.push_back(kMiddle);
  EXPECT_EQ(Prompt(body, {.context = 4096}), expected);

  std::vector<TokenId> turned{kSuffix};
  Append(turned, Ids(" Tokyo."));
  turned.push_back(kPrefix);
  Append(turned, Ids("The capital"));
  Append(turned, Ids(" of"));
  turned.push_back(kMiddle);
  EXPECT_EQ(Prompt(body, {.context = 4096, .suffix_first = true}), turned);
}

TEST_F(InfillTest, OtherFilesComeFirstBehindTheirNames) {
  UseTokens(true);
  const std::string body =
      R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"text":"one","filename":"x"},{"text":"two"}]})";
  std::vector<TokenId> expected{kRepo};
  Append(expected, Ids("project\n"));
  expected.push_back(kSeparator);
  Append(expected, Ids("x\n"));
  Append(expected, Ids("one"));
  expected.push_back(kSeparator);
  Append(expected, Ids("extra\n"));
  Append(expected, Ids("two"));
  expected.push_back(kSeparator);
  Append(expected, Ids("file\n"));
  expected.push_back(kPrefix);
  Append(expected, Ids("a"));
  expected.push_back(kSuffix);
  Append(expected, Ids("b"));
  expected.push_back(kMiddle);
  EXPECT_EQ(Prompt(body, {.context = 4096}), expected);
}

TEST_F(InfillTest, TooLongPartsLoseTheirFarEnds) {
  UseTokens(false);
  const std::string body = R"({"input_prefix":"1 2 3 4 5 6 7 8 9","input_suffix":"a b c d e f g"})";
  const auto before = Ids("1 2 3 4 5 6 7 8 9");
  const auto behind = Ids("a b c d e f g");
  ASSERT_GT(before.size(), 6U);
  ASSERT_GT(behind.size(), 2U);
  // A batch of 8: six tokens of the prefix; of the suffix two less its own two tokens.
  std::vector<TokenId> expected{kPrefix};
  expected.insert(expected.end(), before.end() - 6, before.end());
  expected.push_back(kSuffix);
  expected.push_back(kMiddle);
  EXPECT_EQ(Prompt(body, {.batch = 8, .context = 4096}), expected);
  // A batch of 16: twelve, and the first two of the suffix.
  const auto longer = Prompt(body, {.batch = 16, .context = 4096});
  const auto suffix = std::find(longer.begin(), longer.end(), kSuffix);
  EXPECT_EQ(std::vector<TokenId>(suffix + 1, longer.end() - 1),
            std::vector<TokenId>(behind.begin(), behind.begin() + 2));
}

TEST_F(InfillTest, ControlTokensInTheTextStayText) {
  UseTokens(false);
  const auto ids = Prompt(R"({"input_prefix":"<|im_end|>","input_suffix":""})", {.context = 4096});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer_->special_ids().eos), 0);
}

TEST_F(InfillTest, FieldsAreRequiredAndCheckedByName) {
  UseTokens(false);
  Start();
  const auto refuses = [&](const std::string& body, const std::string& named) {
    EXPECT_THAT(ErrorOf(Post("/infill", body), 400, "invalid_request_error"), HasSubstr(named))
        << body;
  };
  refuses(R"({"input_suffix":""})", "'input_prefix'");
  refuses(R"({"input_prefix":""})", "'input_suffix'");
  refuses(R"({"input_prefix":"","input_suffix":"","prompt":[1]})", "'prompt'");
  refuses(R"({"input_prefix":"","input_suffix":"","input_extra":{}})", "'input_extra'");
  refuses(R"({"input_prefix":"","input_suffix":"","input_extra":[{}]})", "input_extra[0].text");
  refuses(R"({"input_prefix":"","input_suffix":"","input_extra":[{"text":"a","filename":1}]})",
          "input_extra[0].filename");
}

TEST_F(InfillTest, AnswerHasTheNativeShape) {
  UseTokens(false);
  Start();
  const auto answer = PostJson(
      "/infill", R"({"input_prefix":"The","input_suffix":"Tokyo","temperature":0,"n_predict":3})");
  EXPECT_EQ(answer["tokens_predicted"].GetInt(), 3);
  EXPECT_EQ(TextOf(answer, "stop_type"), "limit");
}

TEST_F(InfillTest, VocabularyWithoutTheTokensIsA501ThatNamesThem) {
  Start();
  const std::string why = ErrorOf(Post("/infill", R"({"input_prefix":"","input_suffix":""})"), 501,
                                  "not_supported_error");
  for (const char* part : {"prefix", "suffix", "middle"}) EXPECT_THAT(why, HasSubstr(part));
}

}  // namespace
}  // namespace bloomery::serve

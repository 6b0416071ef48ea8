// What dialects hold while they collect an answer: counted as it grows, bounded when it is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/serve/dialect_native.h"
#include "runtime/serve/dialect_openai.h"
#include "runtime/serve/dialect_openai_chat.h"
#include "tests/support/refusal.h"

namespace bloomery::serve {
namespace {

engine::Text StepOf(const std::string& text) {
  engine::Text step;
  step.text = text;
  step.probabilities = {{.token = 7, .text = text, .value = -0.5, .top = {}}};
  step.probabilities.front().top = {{.token = 7, .text = text, .value = -0.5},
                                    {.token = 9, .text = "other", .value = -1.5}};
  return step;
}

NativeDialect::Prompt PromptOf() {
  auto request = std::make_shared<engine::GenerateRequest>();
  request->sampling.n_probs = 2;
  return {std::move(request), "a prompt"};
}

TEST(Dialects, CountTextAndProbabilitiesThatTheyCollectAndNothingOfAStream) {
  const engine::Text step = StepOf("text");
  const size_t expected =
      step.text.size() + ProbabilityJson(step.probabilities.front(), false).Text().size();
  for (const bool stream : {false, true}) {
    AnswerOptions answer;
    answer.stream = stream;
    StreamEvents out;
    NativeDialect native({}, answer, {PromptOf()}, false);
    OpenAiCompletionDialect completion({}, answer, 1, 1, false);
    OpenAiChatDialect::Options options;
    options.probabilities.wanted = true;
    OpenAiChatDialect chat({}, answer, options);
    for (Dialect* dialect : {static_cast<Dialect*>(&native), static_cast<Dialect*>(&completion),
                             static_cast<Dialect*>(&chat)}) {
      dialect->OnText(0, step, out);
      dialect->OnText(0, step, out);
      EXPECT_EQ(dialect->collected_bytes(), stream ? 0 : 2 * expected);
    }
  }
}

// Each result repeats its prompt and the settings, which were never counted as they came.
TEST(Dialects, SeveralResultsThatAreTooLargeTogetherAreRefused) {
  AnswerOptions answer;
  const auto body_of = [&] {
    return NativeDialect({}, answer, {PromptOf(), PromptOf()}, true).Body().Text();
  };
  const size_t size = body_of().size() - std::string("[,]").size();
  answer.bytes_max = size;
  EXPECT_EQ(body_of().size(), size + 3);
  answer.bytes_max = size - 1;
  const test::Refusal refusal = test::RefusalOf(body_of);
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest);
  EXPECT_THAT(refusal.message, testing::HasSubstr(std::to_string(size - 1)));
}

}  // namespace
}  // namespace bloomery::serve

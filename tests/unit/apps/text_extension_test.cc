#include "runtime/apps/text_extension.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/model/gguf.h"
#include "runtime/plugin/host_services.h"

namespace bloomery::apps {
namespace {

chat::ChatTemplate::Source Source() {
  chat::ChatTemplate::Source source;
  source.main = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
  return source;
}

class TextExtensionTest : public ::testing::Test {
 protected:
  TextExtensionTest()
      : tokenizer_(text::ReadVocabulary(model::OpenGguf(RealFileSystem(), BLOOMERY_SOURCE_DIR
                                                        "/tests/data/mini/qwen3moe/model.gguf")
                                            .metadata())),
        template_(chat::ChatTemplate::Make(Source())),
        extension_(tokenizer_, template_) {}

  text::Tokenizer tokenizer_;
  chat::ChatTemplate template_;
  TextExtension extension_;
  const bl_text_1& t_ = extension_.table();
};

bl_str Str(const std::string& text) { return {text.data(), text.size()}; }

TEST_F(TextExtensionTest, APluginFindsItAtTheHost) {
  plugin::HostServices host("p", 1024, {});
  EXPECT_EQ(host.raw().get_extension(host.raw().self, BL_EXT_TEXT_1), nullptr);
  host.SetTextExtension(&t_);
  EXPECT_EQ(host.raw().get_extension(host.raw().self, BL_EXT_TEXT_1), &t_);
  EXPECT_EQ(t_.size, sizeof(bl_text_1));
}

TEST_F(TextExtensionTest, ACallWaitsForATokenizerInTheMakingAndReportsItsFailure) {
  std::promise<TextParts> making;
  TextExtension extension(making.get_future().share());
  const bl_text_1& table = extension.table();
  auto call = std::async(std::launch::async, [&] {
    uint64_t needed = 0;
    const bl_status status = table.tokenise(table.self, Str("Japan"), 0, nullptr, 0, &needed);
    return std::pair(status, needed);
  });
  making.set_value({.tokenizer = &tokenizer_, .chat_template = &template_});
  const auto [status, count] = call.get();
  EXPECT_EQ(status, BL_OK);
  EXPECT_EQ(count, tokenizer_.Tokenise("Japan", {}).size());

  std::promise<TextParts> failing;
  const TextExtension failed(failing.get_future().share());
  failing.set_exception(std::make_exception_ptr(Error(ErrorKind::kBadModel, "no tokenizer")));
  uint64_t needed = 0;
  EXPECT_EQ(failed.table().tokenise(failed.table().self, Str("a"), 0, nullptr, 0, &needed),
            BL_REFUSED);
}

TEST_F(TextExtensionTest, TokenisesAndBackAndSaysHowMuchRoomItNeeds) {
  const std::string text = "The capital of Japan<|im_end|>";
  for (const bool special : {false, true}) {
    const auto expected = tokenizer_.Tokenise(text, {.parse_special = special});
    uint64_t needed = 0;
    ASSERT_EQ(t_.tokenise(t_.self, Str(text), special ? 1 : 0, nullptr, 0, &needed), BL_OK);
    ASSERT_EQ(needed, expected.size());
    std::vector<int32_t> ids(needed + 1, -7);
    ASSERT_EQ(t_.tokenise(t_.self, Str(text), special ? 1 : 0, ids.data(), needed - 1, &needed),
              BL_OK);
    EXPECT_EQ(ids[needed - 1], -7) << "written past the capacity";
    ASSERT_EQ(t_.tokenise(t_.self, Str(text), special ? 1 : 0, ids.data(), needed, &needed), BL_OK);
    ids.pop_back();
    EXPECT_EQ(ids, expected);
    std::string back(text.size(), '\0');
    ASSERT_EQ(t_.detokenise(t_.self, ids.data(), ids.size(), back.data(), back.size(), &needed),
              BL_OK);
    EXPECT_EQ(needed, text.size());
    EXPECT_EQ(back, text);
  }
}

TEST_F(TextExtensionTest, RendersAChatRequest) {
  std::string out(64, '\0');
  uint64_t needed = 0;
  ASSERT_EQ(t_.render(t_.self, R"({"messages": [{"role": "user", "content": "Hi"}]})", out.data(),
                      out.size(), &needed),
            BL_OK);
  EXPECT_EQ(out.substr(0, needed), "user: Hi");
}

TEST_F(TextExtensionTest, WhatCannotBeDoneIsAStatus) {
  uint64_t needed = 0;
  EXPECT_EQ(t_.render(t_.self, "{", nullptr, 0, &needed), BL_REFUSED);
  EXPECT_EQ(t_.render(t_.self, "[]", nullptr, 0, &needed), BL_REFUSED);
  EXPECT_EQ(t_.render(t_.self, nullptr, nullptr, 0, &needed), BL_REFUSED);
  const int32_t outside = -5;
  EXPECT_EQ(t_.detokenise(t_.self, &outside, 1, nullptr, 0, &needed), BL_REFUSED);
  EXPECT_EQ(t_.tokenise(t_.self, {nullptr, 3}, 0, nullptr, 0, &needed), BL_REFUSED);
  EXPECT_EQ(t_.tokenise(t_.self, {"a", 1}, 0, nullptr, 4, &needed), BL_REFUSED);
  EXPECT_EQ(t_.tokenise(t_.self, {"a", 1}, 0, nullptr, 0, nullptr), BL_REFUSED);
}

}  // namespace
}  // namespace bloomery::apps

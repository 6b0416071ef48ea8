// The extension bloomery.text/1 as a plugin sees it: a real plugin in a server's seat asks for it.
#include <bloomery/text.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/apps/seat_loading.h"
#include "runtime/base/log.h"
#include "runtime/model/gguf.h"
#include "runtime/text/vocabulary.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using testing::HasSubstr;

constexpr const char* kSentence = "The capital of Japan<|im_end|>";

// What the scribe says while it lives.
class Heard : public google::LogSink {
 public:
  Heard() { google::AddLogSink(this); }
  ~Heard() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity /*severity*/, const char* /*path*/, const char* /*file*/,
            int /*line*/, const google::LogMessageTime& /*time*/, const char* message,
            size_t length) override {
    const std::string text(message, length);
    const size_t begin = text.find("scribe, ");
    if (begin != std::string::npos) said_.push_back(text.substr(begin + 8));
  }
  const std::vector<std::string>& said() const { return said_; }

 private:
  std::vector<std::string> said_;
};

class ScribeTest : public testing::Test {
 protected:
  ScribeTest()
      : vocabulary_(text::ReadVocabulary(model::OpenGguf(RealFileSystem(), BLOOMERY_SOURCE_DIR
                                                         "/tests/data/mini/qwen3moe/model.gguf")
                                             .metadata())) {}

  // Serves a model of the scribe with the mini model's vocabulary.
  void Serve(const std::string& extension) {
    test::GgufWriter writer;
    writer.Add("general.architecture", "scribe");
    writer.Add("scribe.extension", extension);
    writer.Add("scribe.sentence", kSentence);
    writer.Add("tokenizer.ggml.model", vocabulary_.model);
    writer.Add("tokenizer.ggml.pre", vocabulary_.pre);
    writer.AddArray("tokenizer.ggml.tokens", vocabulary_.tokens);
    writer.AddArray("tokenizer.ggml.token_type", vocabulary_.token_types);
    writer.AddArray("tokenizer.ggml.merges", vocabulary_.merges);
    writer.AddTensor("token_embd.weight", {32, vocabulary_.tokens.size()}, 0,
                     std::string(vocabulary_.tokens.size() * 32 * sizeof(float), '\0'));
    const std::string path = folder_.File("scribe.gguf");
    writer.WriteTo(path);
    serve::ServeSettings settings;
    settings.plugin_dirs = {ABI_PLUGINS "/scribe"};
    settings.threads = 1;
    settings.context = 64;  // as trained: one instance is enough
    settings.ubatch = 2;
    const ServedModel served(settings, path, "", "");
  }

  test::TempDir folder_;
  text::VocabularyData vocabulary_;
};

TEST_F(ScribeTest, APluginTokenisesAndDetokenisesWithTheSeatsVocabulary) {
  const Heard heard;
  Serve(BL_EXT_TEXT_1);
  const text::Tokenizer tokenizer(vocabulary_);
  std::string ids;
  for (const text::TokenId id : tokenizer.Tokenise(kSentence, {.parse_special = true})) {
    ids += (ids.empty() ? "" : " ") + std::to_string(id);
  }
  EXPECT_THAT(heard.said(), testing::ElementsAre("while created: nothing", "ids: " + ids,
                                                 std::string("back: ") + kSentence,
                                                 "a foreign id: " + std::to_string(BL_REFUSED)));
}

TEST_F(ScribeTest, AnotherVersionOrNameIsNotThereAndThePluginsRefusalEndsTheLoad) {
  for (const char* id : {"bloomery.text/2", "bloomery.text/0", "bloomery.text", "bloomery.text/10",
                         "bloomery.text/1 ", ""}) {
    const test::Refusal refusal = test::RefusalOf([&] { Serve(id); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel) << id;
    EXPECT_THAT(refusal.message, HasSubstr(std::string("the host has no ") + id));
  }
}

}  // namespace
}  // namespace bloomery::apps

// The committed mini model's vocabulary against ids made by another implementation.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/model/gguf.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {
namespace {

const std::string kFolder = BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream out;
  out << file.rdbuf();
  return std::move(out).str();
}

// One i32 tensor of a safetensors file: 8 bytes of header length, the header, the data.
std::vector<TokenId> ReadIds(const std::string& safetensors, const std::string& name) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, safetensors.data(), sizeof header_bytes);
  const auto header = ParseJson(std::string_view(safetensors).substr(8, header_bytes), "header");
  const auto& offsets = header[name]["data_offsets"];
  const size_t begin = 8 + header_bytes + offsets[0].GetUint64();
  const size_t end = 8 + header_bytes + offsets[1].GetUint64();
  std::vector<TokenId> ids((end - begin) / sizeof(TokenId));
  std::memcpy(ids.data(), safetensors.data() + begin, ids.size() * sizeof(TokenId));
  return ids;
}

class MiniVocabularyTest : public ::testing::Test {
 protected:
  MiniVocabularyTest()
      : model_(model::OpenGguf(RealFileSystem(), kFolder + "model.gguf")),
        tokenizer_(ReadVocabulary(model_.metadata())),
        golden_(ReadAll(kFolder + "golden.safetensors")) {}

  model::ModelFile model_;
  Tokenizer tokenizer_;
  std::string golden_;
};

TEST_F(MiniVocabularyTest, PromptTextsTokeniseToTheGoldenIds) {
  const auto texts = ParseJson(ReadAll(kFolder + "golden.json"), "golden.json");
  for (const std::string prompt : {"short", "sum", "mid", "long"}) {
    const std::string text = texts[prompt]["text"].GetString();
    const std::vector<TokenId> ids = ReadIds(golden_, prompt + ".ids");
    ASSERT_FALSE(ids.empty());
    EXPECT_EQ(tokenizer_.Tokenise(text, {.add_special = true, .parse_special = true}), ids)
        << prompt;
    EXPECT_EQ(tokenizer_.Detokenise(ids, SpecialText::kShown), text);
    const std::vector<TokenId> greedy = ReadIds(golden_, prompt + ".greedy");
    EXPECT_EQ(tokenizer_.Detokenise(greedy, SpecialText::kShown),
              texts[prompt]["greedy"].GetString());
  }
}

TEST_F(MiniVocabularyTest, EndOfGenerationIsTheTwoMarkers) {
  EXPECT_EQ(tokenizer_.size(), 2012u);
  EXPECT_EQ(tokenizer_.Find("<|im_end|>"), 2);
  const auto eog = tokenizer_.eog();
  EXPECT_EQ(std::vector<TokenId>(eog.begin(), eog.end()), (std::vector<TokenId>{0, 2}));
}

TEST_F(MiniVocabularyTest, EveryTokenComesBackFromItsOwnText) {
  for (TokenId id = 0; tokenizer_.Contains(id); ++id) {
    const std::string_view piece = tokenizer_.Piece(id, SpecialText::kShown);
    EXPECT_EQ(tokenizer_.Find(piece), id);
    EXPECT_EQ(tokenizer_.Detokenise(tokenizer_.Tokenise(piece), SpecialText::kShown), piece);
  }
}

}  // namespace
}  // namespace bloomery::text

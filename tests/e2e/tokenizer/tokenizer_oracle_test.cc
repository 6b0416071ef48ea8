// The real Qwen3 vocabulary, read from the package's tokenizer.json, must give the ids that the
// JavaScript port of the Hugging Face tokenizer gave (make_cases.mjs); so must another split of
// text in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {
namespace {

const std::string kFolder = ORACLE_FOLDER;

rapidjson::Document Read(const std::string& name) {
  std::ifstream file(kFolder + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return ParseJson(text.str(), name);
}

void SetToken(VocabularyData& data, const rapidjson::Value& id, std::string text, TokenType type) {
  const size_t place = id.GetUint();
  if (place >= data.tokens.size()) {
    data.tokens.resize(place + 1);
    data.token_types.resize(place + 1, static_cast<int32_t>(TokenType::kNormal));
  }
  data.tokens[place] = std::move(text);
  data.token_types[place] = static_cast<int32_t>(type);
}

VocabularyData ReadVocabulary(const std::string& split) {
  const auto json = Read(split + ".json");
  VocabularyData data;
  data.pre = split;
  for (const auto& [text, id] : json["model"]["vocab"].GetObject()) {
    SetToken(data, id, text.GetString(), TokenType::kNormal);
  }
  for (const auto& token : json["added_tokens"].GetArray()) {
    SetToken(data, token["id"], token["content"].GetString(),
             token["special"].GetBool() ? TokenType::kControl : TokenType::kUserDefined);
  }
  for (const auto& merge : json["model"]["merges"].GetArray()) {
    data.merges.push_back(std::string(merge[0].GetString()) + " " + merge[1].GetString());
  }
  data.ids.eos = 151645;
  return data;
}

class TokenizerOracleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = std::make_unique<Tokenizer>(ReadVocabulary("qwen2"));
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<Tokenizer> TokenizerOracleTest::tokenizer_;

TEST_F(TokenizerOracleTest, EveryTextHasTheReferencesIdsInEachSplit) {
  const auto splits = Read("cases.json");
  for (const char* split : {"glm4", "qwen2"}) {
    const Tokenizer tokenizer(ReadVocabulary(split));
    const auto cases = splits[split].GetArray();
    ASSERT_GE(cases.Size(), 2000u);
    int wrong = 0;
    for (const auto& entry : cases) {
      const std::string_view text(entry["text"].GetString(), entry["text"].GetStringLength());
      std::vector<TokenId> expected;
      for (const auto& id : entry["ids"].GetArray()) expected.push_back(id.GetInt());
      const std::vector<TokenId> ids = tokenizer.Tokenise(text, {.parse_special = true});
      EXPECT_EQ(tokenizer.Detokenise(ids, SpecialText::kShown), text);
      EXPECT_EQ(ids, expected) << split << ": " << Printable(text, 400);
      if (ids != expected && ++wrong == 20) FAIL() << "and perhaps more";
    }
  }
}

TEST_F(TokenizerOracleTest, EndOfGenerationIsAsTheModelsConfigurationAndFimTokensSay) {
  EXPECT_EQ(tokenizer_->size(), 151669u);
  EXPECT_THAT(tokenizer_->eog(), ::testing::ElementsAre(151643, 151645, 151662, 151663, 151664));
  // The vocabulary has an ordinary word that reads like another family's end marker.
  EXPECT_NE(tokenizer_->Find("</s>"), kNoToken);
  EXPECT_FALSE(tokenizer_->IsEog(tokenizer_->Find("</s>")));
  EXPECT_EQ(tokenizer_->special_ids().fim_prefix, 151659);
  EXPECT_EQ(tokenizer_->special_ids().fim_middle, 151660);
  EXPECT_EQ(tokenizer_->special_ids().fim_suffix, 151661);
}

TEST_F(TokenizerOracleTest, EveryTokenComesBackFromItsOwnText) {
  for (TokenId id = 0; tokenizer_->Contains(id); ++id) {
    const std::string_view piece = tokenizer_->Piece(id, SpecialText::kShown);
    ASSERT_EQ(tokenizer_->Find(piece), id);
  }
}

}  // namespace
}  // namespace bloomery::text

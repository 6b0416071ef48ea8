// Vocabularies as outside data: what is wrong is refused by key and entry.
#include "runtime/text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/model/metadata.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const VocabularyData& data) {
  try {
    const Tokenizer tokenizer(data);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
    return error.what();
  }
  return "accepted";
}

TEST(VocabularyTest, UnknownModelIsRefusedWithTheKnownOnes) {
  VocabularyData data = SmallVocabulary();
  data.model = "llama";
  EXPECT_THAT(Refusal(data), AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("'llama'"),
                                   HasSubstr("known: gpt2")));
}

TEST(VocabularyTest, UnknownPreTokenizerIsRefusedWithTheKnownOnes) {
  VocabularyData data = SmallVocabulary();
  data.pre = "qwen9\n";
  EXPECT_THAT(Refusal(data), AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("'qwen9\\x0A'"),
                                   HasSubstr("known: glm4, gpt-2, olmo, qwen2, qwen35")));
  data.pre = "";
  EXPECT_THAT(Refusal(data), HasSubstr("known: glm4, gpt-2, olmo, qwen2, qwen35"));
}

TEST(VocabularyTest, EmptyVocabularyIsRefused) {
  VocabularyData data;
  data.pre = "qwen2";
  EXPECT_THAT(Refusal(data), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(VocabularyTest, DuplicateTokenIsRefusedWithBothIds) {
  VocabularyData data = SmallVocabulary();
  AddToken(data, "he", TokenType::kNormal);
  EXPECT_THAT(Refusal(data),
              AllOf(HasSubstr("tokens[266]"), HasSubstr("'he'"), HasSubstr("token 256")));
}

TEST(VocabularyTest, TypesOfAnotherLengthAreRefused) {
  VocabularyData data = SmallVocabulary();
  data.token_types.pop_back();
  EXPECT_THAT(Refusal(data),
              AllOf(HasSubstr("token_type"), HasSubstr("265"), HasSubstr("266 tokens")));
  data.token_types.clear();  // absent: all normal
  data.ids = {};
  EXPECT_EQ(Refusal(data), "accepted");
}

TEST(VocabularyTest, TypesThatDoNotExistAreRefused) {
  for (const int32_t type : {0, 7, -1}) {
    VocabularyData data = SmallVocabulary();
    data.token_types[5] = type;
    EXPECT_THAT(Refusal(data), HasSubstr("token_type[5]"));
  }
}

TEST(VocabularyTest, MergesOfUnknownTokensAreRefused) {
  for (const std::string merge : {"zz e", "e zz", "e h"}) {  // "e h" makes "eh", which is no token
    VocabularyData data = SmallVocabulary();
    data.merges.push_back(merge);
    EXPECT_THAT(Refusal(data), AllOf(HasSubstr("merges[5]"), HasSubstr("no token"))) << merge;
  }
}

TEST(VocabularyTest, MergesWithoutTwoPartsAreRefused) {
  for (const std::string merge : {"", " ", "he", " he", "he "}) {
    VocabularyData data = SmallVocabulary();
    data.merges.push_back(merge);
    EXPECT_THAT(Refusal(data), HasSubstr("merges[5]")) << '"' << merge << '"';
  }
}

TEST(VocabularyTest, AMergeThatMakesATokenWhichReadsOtherwiseIsRefused) {
  VocabularyData data = SmallVocabulary();
  data.merges.push_back(Spell(" ") + " a");
  AddToken(data, Spell(" a"), TokenType::kUserDefined);  // reads U+0120 a, not blank a
  EXPECT_THAT(Refusal(data), AllOf(HasSubstr("merges[5]"), HasSubstr("token 266")));
  data.token_types.back() = static_cast<int32_t>(TokenType::kNormal);
  EXPECT_EQ(Refusal(data), "accepted");
  // What is spelled as it reads may be of any type.
  data.token_types[SmallIds::kHe] = static_cast<int32_t>(TokenType::kUserDefined);
  EXPECT_EQ(Refusal(data), "accepted");
}

TEST(VocabularyTest, IdsOutOfRangeAreRefusedByKey) {
  for (const auto& [name, field] : kSpecialIdKeys) {
    VocabularyData data = SmallVocabulary();
    data.ids.*field = 266;
    EXPECT_THAT(Refusal(data), AllOf(HasSubstr(std::string(name)), HasSubstr("266")));
    data.ids.*field = 265;
    EXPECT_EQ(Refusal(data), "accepted");
    data.ids.*field = -2;
    EXPECT_THAT(Refusal(data), HasSubstr(std::string(name)));
  }
}

TEST(VocabularyTest, AddBosWithoutABosIsRefused) {
  VocabularyData data = SmallVocabulary();
  data.ids.bos = kNoToken;
  data.add_bos = true;
  EXPECT_THAT(Refusal(data), HasSubstr("add_bos_token"));
  data.add_bos = false;
  data.ids.eos = kNoToken;
  data.add_eos = true;
  EXPECT_THAT(Refusal(data), HasSubstr("add_eos_token"));
}

TEST(VocabularyTest, BrokenUtf8InATokenIsRefused) {
  VocabularyData data = SmallVocabulary();
  AddToken(data, "a\xFF", TokenType::kNormal);
  EXPECT_THAT(Refusal(data), AllOf(HasSubstr("tokens[266]"), HasSubstr("UTF-8")));
}

TEST(VocabularyTest, MalformedByteTokenIsRefused) {
  for (const std::string text : {"<0xF>", "<0xGG>", "0xFF", "<0xFF!"}) {
    VocabularyData data = SmallVocabulary();
    AddToken(data, text, TokenType::kByte);
    EXPECT_THAT(Refusal(data), HasSubstr("tokens[266]")) << text;
  }
}

TEST(VocabularyTest, SpecialTokenAboveTheLengthLimitIsRefused) {
  VocabularyData data = SmallVocabulary();
  AddToken(data, std::string(limits::kSpecialTokenBytesMax, 'x'), TokenType::kControl);
  EXPECT_EQ(Refusal(data), "accepted");
  AddToken(data, std::string(limits::kSpecialTokenBytesMax + 1, 'x'), TokenType::kControl);
  EXPECT_THAT(Refusal(data), AllOf(HasSubstr("tokens[267]"), HasSubstr("4097")));
}

// Metadata by hand.
class ReadVocabularyTest : public ::testing::Test {
 protected:
  void AddString(const std::string& key, std::string value) {
    metadata_.Add(key, {model::ValueKind::kString, std::move(value), 0});
  }
  void AddStrings(const std::string& key, const std::vector<std::string>& values) {
    std::string raw;
    std::vector<uint64_t> starts;
    for (const std::string& value : values) {
      raw.append(8, '\0');  // the length's place
      starts.push_back(raw.size());
      raw += value;
    }
    metadata_.Add(key, {model::ValueKind::kArray, model::MetadataArray::OfStrings(raw, starts), 0});
  }
  void AddU32(const std::string& key, uint64_t value) {
    metadata_.Add(key, {model::ValueKind::kU32, value, 0});
  }

  model::Metadata metadata_{"test.gguf"};
};

TEST_F(ReadVocabularyTest, ReadsEveryKey) {
  AddString("tokenizer.ggml.model", "gpt2");
  AddString("tokenizer.ggml.pre", "qwen2");
  AddStrings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  AddStrings("tokenizer.ggml.merges", {"a b"});
  metadata_.Add("tokenizer.ggml.token_type",
                {model::ValueKind::kArray,
                 model::MetadataArray::OfNumbers(model::ValueKind::kI32,
                                                 std::string("\1\0\0\0\4\0\0\0\3\0\0\0", 12)),
                 0});
  metadata_.Add("tokenizer.ggml.add_bos_token", {model::ValueKind::kBool, true, 0});
  for (uint64_t i = 0; i < std::size(kSpecialIdKeys); ++i) {
    AddU32("tokenizer.ggml." + std::string(kSpecialIdKeys[i].first), i);
  }
  const VocabularyData data = ReadVocabulary(metadata_);
  EXPECT_EQ(data.model, "gpt2");
  EXPECT_EQ(data.pre, "qwen2");
  EXPECT_THAT(data.tokens, ElementsAre("a", "b", "ab"));
  EXPECT_THAT(data.merges, ElementsAre("a b"));
  EXPECT_THAT(data.token_types, ElementsAre(1, 4, 3));
  EXPECT_EQ(data.add_bos, true);
  EXPECT_EQ(data.add_eos, std::nullopt);
  EXPECT_EQ(data.ids.bos, 0);
  EXPECT_EQ(data.ids.eos, 1);
  EXPECT_EQ(data.ids.unknown, 4);
  EXPECT_EQ(data.ids.fim_prefix, 6);
  EXPECT_EQ(data.ids.fim_suffix, 7);
  EXPECT_EQ(data.ids.fim_middle, 8);
  EXPECT_EQ(data.ids.fim_separator, 11);
}

TEST_F(ReadVocabularyTest, MissingOrMistypedKeysAreNamed) {
  const auto refusal = [this] {
    try {
      ReadVocabulary(metadata_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.ggml.model"));
  AddString("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.ggml.tokens"));
  AddStrings("tokenizer.ggml.tokens", {"a"});
  EXPECT_EQ(refusal(), "accepted");
  AddString("tokenizer.ggml.add_bos_token", "yes");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.ggml.add_bos_token"));
}

TEST_F(ReadVocabularyTest, AnIdStoredAsMinusOneIsAbsentAndLargerOnesAreRefused) {
  AddString("tokenizer.ggml.model", "gpt2");
  AddStrings("tokenizer.ggml.tokens", {"a"});
  AddU32("tokenizer.ggml.bos_token_id", UINT32_MAX);
  EXPECT_EQ(ReadVocabulary(metadata_).ids.bos, kNoToken);
  AddU32("tokenizer.ggml.eos_token_id", uint64_t{INT32_MAX} + 1);
  try {
    ReadVocabulary(metadata_);
    FAIL() << "an id beyond 31 bits was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("eos_token_id"), HasSubstr("2147483648")));
  }
}

}  // namespace
}  // namespace bloomery::text

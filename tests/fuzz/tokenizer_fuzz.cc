// Any bytes as text, and any bytes as a vocabulary: ids become the same bytes again, streams equal
// the whole, and a vocabulary is either refused with an Error or keeps those promises.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::text {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Takes the input apart from the front.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  std::string_view Bytes(size_t count) {
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  std::string_view Rest() const { return rest_; }

 private:
  std::string_view rest_;
};

void CheckText(const Tokenizer& tokenizer, Input input) {
  const uint8_t flags = input.Byte();
  const size_t begin = input.Byte();
  const size_t length = input.Byte();
  const std::string_view text = input.Rest();
  std::vector<TextRange> plain;
  if ((flags & 2) != 0 && begin + length <= text.size()) plain.push_back({begin, begin + length});
  const auto ids = tokenizer.Tokenise(
      text, {.add_special = false, .parse_special = (flags & 1) != 0, .plain = plain});
  Require(tokenizer.Detokenise(ids, SpecialText::kShown) == text);
  Detokenizer stream(tokenizer, SpecialText::kShown);
  std::string joined;
  for (const TokenId id : ids) joined += stream.Next(id);
  joined += stream.Finish();
  Require(joined == ReplaceInvalidUtf8(text));
}

// The small vocabulary with entries of the input's choice added or overwritten.
VocabularyData ReadChanges(Input& input) {
  VocabularyData data = SmallVocabulary();
  for (uint8_t changes = input.Byte() % 16; changes > 0; --changes) {
    const uint8_t kind = input.Byte();
    const std::string text(input.Bytes(input.Byte() % 32));
    switch (kind % 7) {
      case 0:
        AddToken(data, text, static_cast<TokenType>(input.Byte() % 8));
        break;
      case 1:
        data.merges.push_back(text);
        break;
      case 2:
        data.tokens[input.Byte()] = text;
        break;
      case 3:
        data.token_types[input.Byte()] = input.Byte() % 8;
        break;
      case 4: {  // a merge of two tokens that exist, and what it makes
        const std::string left = data.tokens[input.Byte()];
        const std::string right = data.tokens[input.Byte()];
        data.merges.push_back(left);
        data.merges.back().append(" ").append(right);
        AddToken(data, left + right, static_cast<TokenType>(input.Byte() % 8));
        break;
      }
      case 5:
        data.ids.bos = static_cast<TokenId>(input.Byte()) * 2 - 2;
        break;
      default:
        data.ignore_merges = true;
    }
  }
  return data;
}

}  // namespace
}  // namespace bloomery::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bloomery::text;
  static const Tokenizer small(SmallVocabulary());
  Input input(data, size);
  try {
    if (input.Byte() % 2 == 0) {
      CheckText(small, input);
    } else {
      const Tokenizer tokenizer(ReadChanges(input));
      CheckText(tokenizer, input);
    }
  } catch (const bloomery::Error&) {
    return 0;  // a vocabulary or a text that is refused is as good as one that is taken
  }
  return 0;
}

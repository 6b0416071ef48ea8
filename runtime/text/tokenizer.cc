#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/merges.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/special_tokens.h"

namespace bloomery::text {
namespace {

// Texts that end a generation where a control or user-defined token reads so.
constexpr std::string_view kEndMarkers[] = {
    "<|im_end|>",    "<|endoftext|>", "<|eot_id|>",
    "<|eom_id|>",    "<|end|>",       "<|end_of_text|>",
    "<end_of_turn>", "</s>",          "<｜end▁of▁sentence｜>",
    "[EOS]",         "[EOT]",
};

// Texts of fill-in-the-middle tokens, for files that do not name the ids.
constexpr std::pair<std::string_view, TokenId SpecialIds::*> kFimTexts[] = {
    {"<|fim_prefix|>", &SpecialIds::fim_prefix},  {"<｜fim▁begin｜>", &SpecialIds::fim_prefix},
    {"<|code_prefix|>", &SpecialIds::fim_prefix}, {"<|fim_suffix|>", &SpecialIds::fim_suffix},
    {"<｜fim▁hole｜>", &SpecialIds::fim_suffix},  {"<|code_suffix|>", &SpecialIds::fim_suffix},
    {"<|fim_middle|>", &SpecialIds::fim_middle},  {"<｜fim▁end｜>", &SpecialIds::fim_middle},
    {"<|code_middle|>", &SpecialIds::fim_middle}, {"<|fim_pad|>", &SpecialIds::fim_pad},
    {"<|repo_name|>", &SpecialIds::fim_repo},     {"<|file_sep|>", &SpecialIds::fim_separator},
};

[[noreturn]] void Refuse(std::string_view key, const std::string& problem) {
  throw Error(ErrorKind::kBadModel, "tokenizer.ggml." + std::string(key) + ": " + problem);
}

std::string Entry(std::string_view key, size_t index) {
  return std::string(key) + "[" + std::to_string(index) + "]";
}

using SpellingIndex = std::unordered_map<std::string_view, TokenId>;

// What a normal token's spelling stands for. A code point that spells no byte stands for itself.
std::string Unspell(std::string_view spelling) {
  static_assert(SpellByte(' ') == 0x120 && SpellByte('\n') == 0x10A && SpellByte('A') == 'A');
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Character c = DecodeUtf8(spelling);
    const std::optional<uint8_t> byte = UnspellByte(c.code_point);
    if (byte) {
      bytes += static_cast<char>(*byte);
    } else {
      bytes += spelling.substr(0, c.length);
    }
    spelling.remove_prefix(c.length);
  }
  return bytes;
}

// The byte that `<0xHH>` names.
std::optional<char> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    constexpr std::string_view kDigits = "0123456789ABCDEF0123456789abcdef";
    const size_t place = kDigits.find(digit);
    if (place == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(place % 16);
  }
  return static_cast<char>(value);
}

}  // namespace

struct Tokenizer::State {
  explicit State(const VocabularyData& data);

  void CheckSizes(const VocabularyData& data) const;
  void ReadTypes(const VocabularyData& data);
  SpellingIndex IndexSpellings(const VocabularyData& data) const;
  void MakePieces(const VocabularyData& data);
  void CheckMergePart(TokenId id, std::string_view spelling, size_t rank) const;
  void AddMerges(const VocabularyData& data, const SpellingIndex& spellings);
  void MapBytes(const SpellingIndex& spellings);
  void AddSpecialTokens();
  void ResolveIds(const VocabularyData& data);
  void CollectEog(const std::vector<TokenId>& stop_ids);

  bool IsSpecial(TokenId id) const {
    const TokenType type = types[static_cast<size_t>(id)];
    return type == TokenType::kControl || type == TokenType::kUserDefined ||
           type == TokenType::kUnknown;
  }

  // What `row` points to where the plugin's expressions split.
  std::vector<std::string_view> own_expressions;
  PreTokenizerRow own_row{};
  const PreTokenizerRow* row = nullptr;
  std::optional<PreTokenizer> pre_tokenizer;
  std::vector<TokenType> types;
  std::vector<std::string> pieces;
  // Piece → id; words: normal tokens only, for ignore_merges.
  SpellingIndex special_by_piece;
  SpellingIndex normal_by_piece;
  std::optional<MergeTable> merges;
  std::array<TokenId, 256> byte_ids{};
  SpecialTokens special;
  SpecialIds ids;
  std::vector<TokenId> eog;
  bool add_bos = false;
  bool add_eos = false;
  bool ignore_merges = false;
};

Tokenizer::State::State(const VocabularyData& data) {
  if (data.model != "gpt2") {
    Refuse("model", "unknown tokenizer model '" + Printable(data.model) + "'; known: gpt2");
  }
  row = FindPreTokenizer(data.pre);
  if (row == nullptr && !data.pre_patterns.empty()) {
    own_expressions.assign(data.pre_patterns.begin(), data.pre_patterns.end());
    own_row = {.name = "the plugin's",
               .expressions = own_expressions,
               .add_bos = false,
               .add_eos = false,
               .ignore_merges = false};
    row = &own_row;
  }
  if (row == nullptr) {
    std::string known;
    for (const PreTokenizerRow& r : PreTokenizerRows()) {
      known += (known.empty() ? "" : ", ") + std::string(r.name);
    }
    Refuse("pre", "unknown pre-tokenizer '" + Printable(data.pre) + "'; known: " + known +
                      "; the model's plugin brings no expressions of its own");
  }
  CheckSizes(data);
  pre_tokenizer.emplace(*row);
  ReadTypes(data);
  const SpellingIndex spellings = IndexSpellings(data);
  MakePieces(data);
  AddMerges(data, spellings);
  MapBytes(spellings);
  AddSpecialTokens();
  ResolveIds(data);
  CollectEog(data.stop_ids);
}

void Tokenizer::State::CheckSizes(const VocabularyData& data) const {
  if (data.tokens.empty()) Refuse("tokens", "the vocabulary is empty");
  if (data.tokens.size() > INT32_MAX) {
    Refuse("tokens", std::to_string(data.tokens.size()) + " tokens are more than ids can number");
  }
  if (!data.token_types.empty() && data.token_types.size() != data.tokens.size()) {
    Refuse("token_type", std::to_string(data.token_types.size()) + " entries for " +
                             std::to_string(data.tokens.size()) + " tokens");
  }
  if (data.merges.size() >= UINT32_MAX) {
    Refuse("merges", std::to_string(data.merges.size()) + " merges are more than ranks can number");
  }
}

void Tokenizer::State::ReadTypes(const VocabularyData& data) {
  types.assign(data.tokens.size(), TokenType::kNormal);
  for (size_t i = 0; i < data.token_types.size(); ++i) {
    const int32_t type = data.token_types[i];
    if (type < static_cast<int32_t>(TokenType::kNormal) ||
        type > static_cast<int32_t>(TokenType::kByte)) {
      Refuse(Entry("token_type", i), std::to_string(type) + " is no token type; known: 1 to 6");
    }
    types[i] = static_cast<TokenType>(type);
  }
}

SpellingIndex Tokenizer::State::IndexSpellings(const VocabularyData& data) const {
  SpellingIndex spellings;
  spellings.reserve(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string& token = data.tokens[i];
    if (!IsValidUtf8(token)) {
      Refuse(Entry("tokens", i), "'" + Printable(token) + "' is not valid UTF-8");
    }
    const auto [other, added] = spellings.emplace(token, static_cast<TokenId>(i));
    if (!added) {
      Refuse(Entry("tokens", i),
             "'" + Printable(token) + "' is already token " + std::to_string(other->second));
    }
  }
  return spellings;
}

void Tokenizer::State::MakePieces(const VocabularyData& data) {
  pieces.reserve(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string& token = data.tokens[i];
    if (types[i] == TokenType::kNormal) {
      pieces.push_back(Unspell(token));
    } else if (types[i] == TokenType::kByte) {
      const std::optional<char> byte = ParseByteToken(token);
      if (!byte) {
        Refuse(Entry("tokens", i),
               "a byte token reads <0x00> to <0xFF>, not '" + Printable(token) + "'");
      }
      pieces.emplace_back(1, *byte);
    } else {
      pieces.push_back(token);
    }
  }
  normal_by_piece.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].empty()) continue;
    const auto id = static_cast<TokenId>(i);
    if (IsSpecial(id)) special_by_piece.emplace(pieces[i], id);
    if (types[i] == TokenType::kNormal) normal_by_piece.emplace(pieces[i], id);
  }
}

// Words are made of bytes, so a token that merging makes or uses must read as what it is spelled.
void Tokenizer::State::CheckMergePart(TokenId id, std::string_view spelling, size_t rank) const {
  const auto place = static_cast<size_t>(id);
  if (types[place] == TokenType::kNormal || pieces[place] == Unspell(spelling)) return;
  Refuse(Entry("merges", rank),
         "uses '" + Printable(spelling) + "', which is token " + std::to_string(id) + " of type " +
             std::to_string(static_cast<int>(types[place])) + " and reads otherwise");
}

void Tokenizer::State::AddMerges(const VocabularyData& data, const SpellingIndex& spellings) {
  merges.emplace(data.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string& merge = data.merges[rank];
    const auto id = [&](std::string_view part) {
      const auto found = spellings.find(part);
      if (found == spellings.end()) {
        Refuse(Entry("merges", rank),
               "'" + Printable(merge) + "' needs '" + Printable(part) + "', which is no token");
      }
      CheckMergePart(found->second, part, rank);
      return found->second;
    };
    // No spelling holds a blank (it is spelled U+0120), so the first one separates.
    const size_t blank = merge.find(' ');
    if (blank == 0 || blank == std::string::npos || blank + 1 == merge.size()) {
      Refuse(Entry("merges", rank), "'" + Printable(merge) + "' is not two parts with a blank");
    }
    const auto left = std::string_view(merge).substr(0, blank);
    const auto right = std::string_view(merge).substr(blank + 1);
    joined.assign(left).append(right);
    merges->Add(id(left), id(right), {static_cast<uint32_t>(rank), id(joined)});
  }
}

// Each byte's token: its spelling, else a byte token.
void Tokenizer::State::MapBytes(const SpellingIndex& spellings) {
  byte_ids.fill(kNoToken);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != TokenType::kByte) continue;
    byte_ids[static_cast<unsigned char>(pieces[i][0])] = static_cast<TokenId>(i);
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    AppendUtf8(SpellByte(static_cast<uint8_t>(byte)), spelling);
    const auto found = spellings.find(spelling);
    if (found != spellings.end() &&
        types[static_cast<size_t>(found->second)] == TokenType::kNormal) {
      byte_ids[byte] = found->second;
    }
  }
}

void Tokenizer::State::AddSpecialTokens() {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!IsSpecial(id) || pieces[i].empty()) continue;
    if (pieces[i].size() > limits::kSpecialTokenBytesMax) {
      Refuse(Entry("tokens", i), "a control or user-defined token of " +
                                     std::to_string(pieces[i].size()) + " bytes; at most " +
                                     std::to_string(limits::kSpecialTokenBytesMax) + " are taken");
    }
    special.Add(pieces[i], id, types[i] != TokenType::kUserDefined);
  }
}

void Tokenizer::State::ResolveIds(const VocabularyData& data) {
  ids = data.ids;
  for (const auto& [name, field] : kSpecialIdKeys) {
    const TokenId id = ids.*field;
    if (id != kNoToken && (id < 0 || static_cast<size_t>(id) >= pieces.size())) {
      Refuse(name, std::to_string(id) + " is outside the vocabulary of " +
                       std::to_string(pieces.size()) + " tokens");
    }
  }
  for (const auto& [text, field] : kFimTexts) {
    const auto found = special_by_piece.find(text);
    if (ids.*field == kNoToken && found != special_by_piece.end()) ids.*field = found->second;
  }
  add_bos = data.add_bos.value_or(row->add_bos);
  add_eos = data.add_eos.value_or(row->add_eos);
  ignore_merges = data.ignore_merges.value_or(row->ignore_merges);
  if (add_bos && ids.bos == kNoToken) Refuse("add_bos_token", "true, but bos_token_id is missing");
  if (add_eos && ids.eos == kNoToken) Refuse("add_eos_token", "true, but eos_token_id is missing");
}

void Tokenizer::State::CollectEog(const std::vector<TokenId>& stop_ids) {
  for (const TokenId id : stop_ids) {
    if (id < 0 || static_cast<size_t>(id) >= pieces.size()) {
      throw Error(ErrorKind::kBadModel, "the plugin's stop id " + std::to_string(id) +
                                            " is outside the vocabulary of " +
                                            std::to_string(pieces.size()) + " tokens");
    }
    eog.push_back(id);
  }
  for (const TokenId id :
       {ids.eos, ids.eot, ids.eom, ids.fim_pad, ids.fim_repo, ids.fim_separator}) {
    if (id != kNoToken) eog.push_back(id);
  }
  for (const std::string_view marker : kEndMarkers) {
    const auto found = special_by_piece.find(marker);
    if (found != special_by_piece.end()) eog.push_back(found->second);
  }
  std::sort(eog.begin(), eog.end());
  eog.erase(std::unique(eog.begin(), eog.end()), eog.end());
}

Tokenizer::Tokenizer(const VocabularyData& vocabulary)
    : state_(std::make_unique<const State>(vocabulary)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

namespace {

void CheckPlainRanges(std::span<const TextRange> plain, size_t size) {
  size_t done = 0;
  for (const TextRange& range : plain) {
    if (range.begin < done || range.end < range.begin || range.end > size) {
      throw Error(ErrorKind::kBadRequest, "the plain range [" + std::to_string(range.begin) + ", " +
                                              std::to_string(range.end) +
                                              ") is out of order or outside the text of " +
                                              std::to_string(size) + " bytes");
    }
    done = range.end;
  }
}

// How far a control token may reach that begins at a place: to the next plain range, and not at all
// inside one. Asked at ascending places.
class ControlReach {
 public:
  ControlReach(const TokeniseOptions& options, size_t size)
      : plain_(options.plain), size_(size), parse_special_(options.parse_special) {}

  size_t BytesAt(size_t at) {
    if (!parse_special_) return 0;
    while (next_ < plain_.size() && plain_[next_].end <= at) ++next_;
    if (next_ == plain_.size()) return size_ - at;
    return plain_[next_].begin > at ? plain_[next_].begin - at : 0;
  }

 private:
  std::span<const TextRange> plain_;
  size_t size_;
  bool parse_special_;
  size_t next_ = 0;
};

}  // namespace

// One call's work: words to ids.
class Tokenizer::Run {
 public:
  Run(const State& state, size_t tokens_max, std::vector<TokenId>& out)
      : state_(&state), merger_(*state.merges), tokens_max_(tokens_max), out_(&out) {}

  // Text without special tokens. False once there are more tokens than are wanted.
  bool Text(std::string_view text) {
    state_->pre_tokenizer->Split(text, [this](std::string_view word) {
      Word(word);
      return GoesOn();
    });
    return GoesOn();
  }

 private:
  bool GoesOn() const { return out_->size() <= tokens_max_; }

  void Word(std::string_view word) {
    if (state_->ignore_merges) {
      const auto found = state_->normal_by_piece.find(word);
      if (found != state_->normal_by_piece.end()) {
        out_->push_back(found->second);
        return;
      }
    }
    while (!word.empty() && GoesOn()) {
      const std::string_view part = word.substr(0, limits::kWordBytesMax);
      symbols_.clear();
      for (const char byte : part) symbols_.push_back(ByteId(byte));
      merger_.Run(symbols_, *out_);
      word.remove_prefix(part.size());
    }
  }

  TokenId ByteId(char byte) const {
    const auto value = static_cast<unsigned char>(byte);
    const TokenId id = state_->byte_ids[value];
    if (id == kNoToken) {
      throw Error(ErrorKind::kBadRequest, "the vocabulary has no token for the byte " +
                                              std::to_string(value) + " of the text");
    }
    return id;
  }

  const State* state_;
  Merger merger_;
  size_t tokens_max_;
  std::vector<TokenId>* out_;
  std::vector<TokenId> symbols_;
};

std::vector<TokenId> Tokenizer::Tokenise(std::string_view text,
                                         const TokeniseOptions& options) const {
  if (text.size() > limits::kTokeniseBytesMax) {
    throw Error(ErrorKind::kBadRequest,
                "a text of " + std::to_string(text.size()) + " bytes; at most " +
                    std::to_string(limits::kTokeniseBytesMax) + " are tokenised");
  }
  CheckPlainRanges(options.plain, text.size());
  std::vector<TokenId> out;
  Run run(*state_, options.tokens_max, out);
  ControlReach reach(options, text.size());
  if (options.add_special && state_->add_bos) out.push_back(state_->ids.bos);
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    SpecialTokens::Match match;
    if (state_->special.MayBegin(text[at])) {
      match = state_->special.Longest(text.substr(at), reach.BytesAt(at));
    }
    if (match.length == 0) {
      ++at;
      continue;
    }
    if (!run.Text(text.substr(done, at - done))) return out;
    out.push_back(match.id);
    at += match.length;
    done = at;
  }
  if (!run.Text(text.substr(done))) return out;
  if (options.add_special && state_->add_eos) out.push_back(state_->ids.eos);
  return out;
}

std::string Tokenizer::Detokenise(std::span<const TokenId> ids, SpecialText special) const {
  std::string text;
  for (const TokenId id : ids) text += Piece(id, special);
  return text;
}

std::string_view Tokenizer::Piece(TokenId id, SpecialText special) const {
  const TokenType type = Type(id);
  const bool hidden = type == TokenType::kControl || type == TokenType::kUnknown;
  if (hidden && special == SpecialText::kHidden) return {};
  return state_->pieces[static_cast<size_t>(id)];
}

std::string_view Tokenizer::SpecialPiece(TokenId id) const {
  return id == kNoToken ? std::string_view() : Piece(id, SpecialText::kShown);
}

TokenId Tokenizer::Find(std::string_view text) const {
  for (const SpellingIndex* index : {&state_->special_by_piece, &state_->normal_by_piece}) {
    const auto found = index->find(text);
    if (found != index->end()) return found->second;
  }
  return kNoToken;
}

size_t Tokenizer::size() const { return state_->pieces.size(); }

TokenType Tokenizer::Type(TokenId id) const {
  if (!Contains(id)) {
    throw Error(ErrorKind::kBadRequest, "token id " + std::to_string(id) +
                                            " is outside the vocabulary of " +
                                            std::to_string(size()) + " tokens");
  }
  return state_->types[static_cast<size_t>(id)];
}

bool Tokenizer::IsEog(TokenId id) const {
  return std::binary_search(state_->eog.begin(), state_->eog.end(), id);
}

std::span<const TokenId> Tokenizer::eog() const { return state_->eog; }
const SpecialIds& Tokenizer::special_ids() const { return state_->ids; }
bool Tokenizer::add_bos() const { return state_->add_bos; }
bool Tokenizer::add_eos() const { return state_->add_eos; }

}  // namespace bloomery::text

#include "runtime/text/grammar/automaton.h"

#include <algorithm>
#include <bit>

#include "runtime/base/limits.h"

namespace bloomery::text {
namespace {

constexpr size_t kBitsOfWord = 64;

void SetBit(std::vector<uint64_t>& bits, TokenId token) {
  bits[static_cast<size_t>(token) / kBitsOfWord] |= uint64_t{1}
                                                    << (static_cast<size_t>(token) % kBitsOfWord);
}

// As a list where that is smaller than the bits.
std::shared_ptr<const TokenMask> Pack(std::vector<uint64_t> bits) {
  auto mask = std::make_shared<TokenMask>();
  for (const uint64_t word : bits) mask->allowed += static_cast<size_t>(std::popcount(word));
  if (mask->allowed * sizeof(TokenId) > bits.size() * sizeof(uint64_t)) {
    mask->bits = std::move(bits);
    return mask;
  }
  mask->few.reserve(mask->allowed);
  for (size_t i = 0; i < bits.size(); ++i) {
    for (uint64_t word = bits[i]; word != 0; word &= word - 1) {
      const size_t token = i * kBitsOfWord + static_cast<size_t>(std::countr_zero(word));
      mask->few.push_back(static_cast<TokenId>(token));
    }
  }
  return mask;
}

}  // namespace

bool TokenMask::Holds(TokenId token) const {
  if (token < 0) return false;
  const size_t word = static_cast<size_t>(token) / kBitsOfWord;
  if (bits.empty()) return std::binary_search(few.begin(), few.end(), token);
  return word < bits.size() && (bits[word] >> (static_cast<size_t>(token) % kBitsOfWord) & 1) != 0;
}

GrammarAutomaton::GrammarAutomaton(const Tokenizer& tokenizer,
                                   std::shared_ptr<const TokenTrie> trie, GrammarProgram program,
                                   std::vector<TokenId> preserved)
    : tokenizer_(tokenizer),
      trie_(std::move(trie)),
      program_(std::move(program)),
      preserved_(std::move(preserved)),
      in_trie_(tokenizer.size()),
      tables_(std::make_shared<GrammarTables>(program_)),
      levels_(trie_->depth_max() + 1) {
  for (const TokenId token : trie_->order()) in_trie_[static_cast<size_t>(token)] = true;
}

// Carries a place of older tables over, and begins new tables where the present ones are full.
void GrammarAutomaton::Settle(Place& place) {
  if (tables_->bytes() > limits::kGrammarTablesBytesMax) {
    tables_ = std::make_shared<GrammarTables>(program_);
  }
  tables_->BeginWork();
  if (place.tables == tables_) return;
  place.id = tables_->Import(*place.tables, place.id);
  place.tables = tables_;
}

GrammarAutomaton::Place GrammarAutomaton::Start() {
  const std::lock_guard lock(mutex_);
  return {tables_, tables_->start()};
}

PlaceId GrammarAutomaton::Walk(PlaceId place, std::string_view text) {
  for (const char c : text) {
    place = tables_->Step(place, static_cast<uint8_t>(c));
    if (place == GrammarTables::kDead) break;
  }
  return place;
}

bool GrammarAutomaton::MatchesByText(TokenId token) const {
  return in_trie_[static_cast<size_t>(token)] ||
         std::ranges::find(preserved_, token) != preserved_.end();
}

PlaceId GrammarAutomaton::Follow(PlaceId place, TokenId token) {
  // What ends the generation is no token like others: only its name lets it into the middle.
  const bool eog = tokenizer_.IsEog(token);
  const PlaceId by_edge = tables_->StepToken(place, token, eog);
  if (eog && by_edge == GrammarTables::kDead) {
    return tables_->accepting(place) ? place : GrammarTables::kDead;
  }
  if (!MatchesByText(token)) return by_edge;
  return tables_->Join(Walk(place, tokenizer_.Piece(token, SpecialText::kShown)), by_edge);
}

GrammarAutomaton::Place GrammarAutomaton::AfterToken(Place& place, TokenId token) {
  const std::lock_guard lock(mutex_);
  Settle(place);
  return {tables_, Follow(place.id, token)};
}

GrammarAutomaton::Place GrammarAutomaton::AfterText(Place& place, std::string_view text) {
  const std::lock_guard lock(mutex_);
  Settle(place);
  return {tables_, Walk(place.id, text)};
}

std::shared_ptr<const TokenMask> GrammarAutomaton::Mask(Place& place) {
  const std::lock_guard lock(mutex_);
  Settle(place);
  std::shared_ptr<const TokenMask> mask = tables_->mask(place.id);
  if (mask) return mask;
  mask = BuildMask(place.id);
  tables_->mask(place.id) = mask;
  tables_->Note(sizeof(TokenMask) + mask->few.size() * sizeof(TokenId) +
                mask->bits.size() * sizeof(uint64_t));
  return mask;
}

bool GrammarAutomaton::Accepting(const Place& place) const {
  const std::lock_guard lock(mutex_);
  return place.tables->accepting(place.id);
}

bool GrammarAutomaton::Exhausted(const Place& place) const {
  const std::lock_guard lock(mutex_);
  return place.tables->accepting(place.id) && place.tables->threads(place.id).empty();
}

std::shared_ptr<const TokenMask> GrammarAutomaton::BuildMask(PlaceId place) {
  std::vector<uint64_t> bits((tokenizer_.size() + kBitsOfWord - 1) / kBitsOfWord);
  MarkEdges(place, bits);
  MarkTrie(place, bits);
  for (const TokenId token : preserved_) {
    if (Walk(place, tokenizer_.Piece(token, SpecialText::kShown)) != GrammarTables::kDead) {
      SetBit(bits, token);
    }
  }
  if (tables_->accepting(place)) {
    for (const TokenId token : tokenizer_.eog()) SetBit(bits, token);
  }
  return Pack(std::move(bits));
}

void GrammarAutomaton::MarkTrie(PlaceId place, std::vector<uint64_t>& bits) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  const std::span<const TokenId> order = trie_->order();
  levels_[0] = place;
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const PlaceId before = levels_[node.depth - 1u];
    // Worth the look where it spares some steps.
    if (node.plain && node.end > i + 4 && tables_->LoopsOnPlain(before)) {
      for (uint32_t t = node.first_token; t < nodes[node.end].first_token; ++t) {
        SetBit(bits, order[t]);
      }
      i = node.end;
      continue;
    }
    const PlaceId after = tables_->Step(before, node.byte);
    if (after == GrammarTables::kDead) {
      i = node.end;
      continue;
    }
    levels_[node.depth] = after;
    for (uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) SetBit(bits, order[t]);
    ++i;
  }
}

// Tokens that the grammar names. Of "any but one" two different ones together are any.
void GrammarAutomaton::MarkEdges(PlaceId place, std::vector<uint64_t>& bits) {
  TokenId barred = kNoToken;
  bool others = false;
  bool any = false;
  for (const GrammarTables::Thread& thread : tables_->threads(place)) {
    const ProgramNode& node = program_.nodes[thread.node];
    if (node.kind != ProgramNode::Kind::kToken) continue;
    const auto token = static_cast<TokenId>(node.other);
    if (!node.negated) {
      SetBit(bits, token);
      continue;
    }
    any = any || (others && token != barred);
    others = true;
    barred = token;
  }
  if (!others) return;
  for (TokenId token = 0; tokenizer_.Contains(token); ++token) {
    if ((any || token != barred) && !tokenizer_.IsEog(token)) SetBit(bits, token);
  }
}

}  // namespace bloomery::text

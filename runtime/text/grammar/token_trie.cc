#include "runtime/text/grammar/token_trie.h"

#include <algorithm>
#include <string_view>

namespace bloomery::text {
namespace {

constexpr size_t kPieceBytesMax = 4096;  // depths stay small; no vocabulary has such words

bool IsText(const Tokenizer& tokenizer, TokenId id) {
  if (tokenizer.IsEog(id)) return false;
  const TokenType type = tokenizer.Type(id);
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kByte;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  for (TokenId id = 0; tokenizer.Contains(id); ++id) {
    const size_t bytes = tokenizer.Piece(id).size();
    if (bytes > 0 && bytes <= kPieceBytesMax && IsText(tokenizer, id)) order_.push_back(id);
  }
  const auto piece = [&](TokenId id) { return tokenizer.Piece(id); };
  std::sort(order_.begin(), order_.end(), [&](TokenId a, TokenId b) {
    const int order = piece(a).compare(piece(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> open;  // the path to the newest node, root's child first
  std::string_view previous;
  const auto close = [&](size_t depth) {
    while (open.size() > depth) {
      Node& node = nodes_[open.back()];
      node.end = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
      if (!open.empty() && !node.plain) nodes_[open.back()].plain = false;
    }
  };
  for (size_t i = 0; i < order_.size(); ++i) {
    const std::string_view text = piece(order_[i]);
    size_t shared = 0;
    while (shared < std::min(text.size(), previous.size()) && text[shared] == previous[shared]) {
      ++shared;
    }
    close(shared);
    for (size_t at = shared; at < text.size(); ++at) {
      const auto byte = static_cast<uint8_t>(text[at]);
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .first_token = static_cast<uint32_t>(i),
                        .depth = static_cast<uint16_t>(at + 1),
                        .byte = byte,
                        .plain = IsPlainByte(byte)});
    }
    depth_max_ = std::max(depth_max_, text.size());
    previous = text;
  }
  close(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size() + 1),
                    .first_token = static_cast<uint32_t>(order_.size()),
                    .depth = 0,
                    .byte = 0,
                    .plain = false});
}

}  // namespace bloomery::text

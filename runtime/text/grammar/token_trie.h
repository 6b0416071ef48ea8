// The texts of a vocabulary as a tree of bytes, for walking all tokens at once. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace bloomery::text {

// Printable ASCII but for the quote and the backslash: what most tokens consist of, and what a JSON
// string takes in its stride.
inline bool IsPlainByte(uint8_t byte) {
  return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
}

class TokenTrie {
 public:
  // In the order of a depth-first walk, so a node's subtree is [node + 1, end).
  struct Node {
    uint32_t end;
    uint32_t first_token;  // into order(): the tokens that end here, then those of the subtree
    uint16_t depth;        // bytes from the root, 1 for its children
    uint8_t byte;
    bool plain;  // this byte and all of the subtree's are plain
  };

  // Of all tokens that text can consist of: neither control tokens nor unknown or unused ones, nor
  // those that end generation.
  explicit TokenTrie(const Tokenizer& tokenizer);

  // Without the root; one more node at the end whose first_token is the number of tokens.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> order() const { return order_; }
  size_t depth_max() const { return depth_max_; }
  // How many of order() end at a node itself.
  size_t TokensAt(size_t node) const {
    return nodes_[node + 1].first_token - nodes_[node].first_token;
  }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> order_;
  size_t depth_max_ = 0;
};

}  // namespace bloomery::text

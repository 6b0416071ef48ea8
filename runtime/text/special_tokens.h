// Finds the tokens that are cut out of a text before it is split into words: user-defined tokens
// always, control tokens where the caller allows them. Immutable once filled; any thread may
// search.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace bloomery::text {

class SpecialTokens {
 public:
  struct Match {
    TokenId id = kNoToken;
    size_t length = 0;  // bytes
  };

  SpecialTokens();

  // `text` is not empty and not added before.
  void Add(std::string_view text, TokenId id, bool control);

  // Whether any token begins with this byte: a cheap test before Longest.
  bool MayBegin(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

  // The longest token that `text` begins with. A control token counts only where it is at most
  // `control_bytes_max` long. Length 0 where there is none.
  Match Longest(std::string_view text, size_t control_bytes_max) const;

 private:
  // A trie of bytes: children are a list of siblings, which is short below the first byte.
  struct Node {
    char byte = 0;
    bool control = false;
    TokenId id = kNoToken;
    uint32_t child = 0;    // 0: none
    uint32_t sibling = 0;  // 0: none
  };

  uint32_t Child(uint32_t node, char byte) const;

  std::vector<Node> nodes_;            // 0 stands for none
  std::array<uint32_t, 256> first_{};  // the first byte's node
};

}  // namespace bloomery::text

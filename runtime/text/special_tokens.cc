#include "runtime/text/special_tokens.h"

namespace bloomery::text {

SpecialTokens::SpecialTokens() : nodes_(1) {}

uint32_t SpecialTokens::Child(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void SpecialTokens::Add(std::string_view text, TokenId id, bool control) {
  const auto add_node = [this](char byte) {
    nodes_.push_back({.byte = byte});
    return static_cast<uint32_t>(nodes_.size() - 1);
  };
  uint32_t& first = first_[static_cast<unsigned char>(text[0])];
  if (first == 0) first = add_node(text[0]);
  uint32_t node = first;
  for (const char byte : text.substr(1)) {
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = add_node(byte);
      nodes_[child].sibling = nodes_[node].child;
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].id = id;
  nodes_[node].control = control;
}

SpecialTokens::Match SpecialTokens::Longest(std::string_view text, size_t control_bytes_max) const {
  Match best;
  uint32_t node = first_[static_cast<unsigned char>(text[0])];
  for (size_t length = 1; node != 0; ++length) {
    const Node& at = nodes_[node];
    if (at.id != kNoToken && (!at.control || length <= control_bytes_max)) best = {at.id, length};
    if (length == text.size()) break;
    node = Child(node, text[length]);
  }
  return best;
}

}  // namespace bloomery::text

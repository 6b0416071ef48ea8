// The hyper-parameters of a Qwen3 mixture-of-experts model, read from the file's metadata and
// checked against each other. Nothing is assumed that the file can say.
#pragma once

#include <bloomery/model.hpp>
#include <cstdint>

namespace bloomery::qwen3 {

struct Hyper {
  uint32_t layers = 0;
  uint64_t width = 0;  // of the residual stream
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t key_dim = 0;    // of one head, queries and keys
  uint64_t value_dim = 0;  // of one head
  uint64_t rope_dims = 0;  // rotated values of a head
  double rope_base = 0;
  double eps = 0;
  uint32_t experts = 0;
  uint32_t experts_used = 0;
  uint64_t expert_ff = 0;
  uint64_t vocabulary = 0;
  uint64_t context = 0;
  bool tied_head = false;  // the embedding is the head, too
};

// Throws sdk::Failure naming the key or tensor that is missing, contradicts another, or asks for
// what this plugin does not compute (scaled rope, another router, shared experts, draft layers).
Hyper ReadHyper(const sdk::Model& model);

}  // namespace bloomery::qwen3

// The hyper-parameters of a model of the Qwen3 family, read from the file's metadata and checked
// against each other. Nothing is assumed that the file can say; what a model is made of follows
// from which keys are there, never from the name of its architecture.
#pragma once

#include <bloomery/model.hpp>
#include <cstdint>
#include <vector>

namespace bloomery::qwen3 {

// The recurrent layers of the hybrid models.
struct DeltaHyper {
  uint64_t key_heads = 0;
  uint64_t value_heads = 0;
  uint64_t head_dim = 0;
  uint64_t taps = 0;
};

struct Hyper {
  uint32_t layers = 0;        // of the trunk
  uint32_t draft_layers = 0;  // behind it in the file: the first is run where drafts are wanted
  uint64_t width = 0;         // of the residual stream
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t key_dim = 0;    // of one head, queries and keys
  uint64_t value_dim = 0;  // of one head
  uint64_t rope_dims = 0;  // rotated values of a head
  double rope_base = 0;
  double eps = 0;
  // Hybrid models: layers are recurrent where said, attention is gated, and the norm before the
  // feed-forward block has another name.
  bool hybrid = false;
  DeltaHyper delta;
  std::vector<bool> recurrent;  // [layers]
  uint32_t experts = 0;         // 0: dense feed-forward blocks
  uint32_t experts_used = 0;
  uint64_t ff = 0;         // inner width of an expert, or of the dense block
  uint64_t shared_ff = 0;  // of the shared expert; 0: none
  uint64_t vocabulary = 0;
  uint64_t context = 0;
  bool tied_head = false;  // the embedding is the head, too
};

// Throws sdk::Failure naming the key or tensor that is missing, contradicts another, or asks for
// what this plugin does not compute (scaled rope, another router).
Hyper ReadHyper(const sdk::Model& model);

}  // namespace bloomery::qwen3

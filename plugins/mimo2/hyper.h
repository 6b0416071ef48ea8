// The hyper-parameters of a MiMo-V2 model, read from the file's metadata and checked against each
// other. Nothing is assumed that the file can say; whether a layer routes follows from its tensors.
#pragma once

#include <bloomery/model.hpp>
#include <cstdint>
#include <vector>

namespace bloomery::mimo2 {

struct LayerHyper {
  bool sliding = false;  // sees its last keys only, with sinks, and turns by another base
  bool fused = false;    // queries, keys and values in one tensor
  bool routed = false;
  uint64_t kv_heads = 0;
};

struct Hyper {
  std::vector<LayerHyper> layers;  // of the trunk
  uint32_t draft_layers = 0;       // behind it: the first is run where drafts are wanted
  LayerHyper draft;                // that one
  uint64_t width = 0;              // of the residual stream
  uint64_t heads = 0;
  uint64_t key_dim = 0;    // of one head, queries and keys
  uint64_t value_dim = 0;  // of one head
  uint64_t rope_dims = 0;  // rotated values of a head
  double rope_base = 0;
  double rope_base_sliding = 0;
  double value_scale = 1;
  double eps = 0;
  uint64_t window = 0;  // keys that a row of a sliding layer sees, its own included
  uint64_t ff = 0;      // inner width of a dense block
  uint32_t experts = 0;
  uint32_t experts_used = 0;
  uint64_t expert_ff = 0;
  bool biased = false;       // routers have a selection bias
  double weights_scale = 1;  // of the picked experts
  uint64_t vocabulary = 0;
  uint64_t context = 0;
};

// Throws sdk::Failure naming the key or tensor that is missing, contradicts another, or asks for
// what this plugin does not compute.
Hyper ReadHyper(const sdk::Model& model);

}  // namespace bloomery::mimo2

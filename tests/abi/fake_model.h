// A model file of the architecture "fake": metadata and tensors that the fake plugin accepts.
// Values are small and follow from the index, so that two builds of it are equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace bloomery::test {

struct FakeModelShape {
  uint32_t layers = 2, width = 64, heads = 4, kv_heads = 2, experts = 4, used = 2, ff = 32,
           vocabulary = 48;
};

inline std::string FakeValues(uint64_t n, uint32_t seed) {
  std::string bytes;
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t hash = static_cast<uint32_t>(i + 1) * 2654435761u + seed * 40503u;
    bytes += GgufWriter::Encode((static_cast<float>(hash >> 16) / 65536.0f - 0.5f) * 0.25f);
  }
  return bytes;
}

// `without` leaves out the tensor of that name; `extra` adds one that no layer knows.
inline GgufWriter FakeModel(const FakeModelShape& s = {}, const std::string& without = "",
                            const std::string& extra = "", const std::string& architecture = "fake",
                            float factor = 0.5f) {
  GgufWriter writer;
  const auto key = [&](const char* rest) { return architecture + "." + rest; };
  writer.Add("general.architecture", architecture);
  writer.Add(key("block_count"), s.layers);
  writer.Add(key("embedding_length"), s.width);
  writer.Add(key("attention.head_count"), s.heads);
  writer.Add(key("attention.head_count_kv"), s.kv_heads);
  writer.Add(key("expert_count"), s.experts);
  writer.Add(key("expert_used_count"), s.used);
  writer.Add(key("expert_feed_forward_length"), s.ff);
  writer.Add(key("factor"), factor);
  uint32_t seed = 1;
  const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& ne) {
    if (name == without) return;
    uint64_t n = 1;
    for (const uint64_t d : ne) n *= d;
    writer.AddTensor(name, ne, 0, FakeValues(n, seed++));
  };
  const uint64_t kv = uint64_t{s.width} / s.heads * s.kv_heads;
  tensor("token_embd.weight", {s.width, s.vocabulary});
  for (uint32_t l = 0; l < s.layers; ++l) {
    const std::string prefix = "blk." + std::to_string(l) + ".";
    tensor(prefix + "norm.weight", {s.width});
    tensor(prefix + "q.weight", {s.width, s.width});
    tensor(prefix + "k.weight", {s.width, kv});
    tensor(prefix + "v.weight", {s.width, kv});
    tensor(prefix + "out.weight", {s.width, s.width});
    tensor(prefix + "router.weight", {s.width, s.experts});
    tensor(prefix + "gate.weight", {s.width, s.ff, s.experts});
    tensor(prefix + "up.weight", {s.width, s.ff, s.experts});
    tensor(prefix + "down.weight", {s.ff, s.width, s.experts});
  }
  tensor("blk.0.unused.weight", {4});
  if (!extra.empty()) tensor(extra, {4});
  return writer;
}

}  // namespace bloomery::test

// Pseudo-random weights that are the same on every machine: integer arithmetic and exactly rounded
// operations only. Blocks are quantised once into a pool and rows put together from them, so that
// a file is written as fast as the disk takes it, in any type this build writes. Values only; one
// generator belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/tensor_type.h"

namespace bloomery::apps {

// SplitMix64, seeded by a number and a name, so that a tensor's values depend on nothing else.
class Random {
 public:
  Random(uint64_t seed, std::string_view name);

  uint64_t Next();
  // Of [0, n), n > 0 and below 2^32.
  uint64_t Below(uint64_t n) { return (Next() >> 32) * n >> 32; }
  double Uniform();  // of [0, 1)
  // Mean 0, deviation 1, at most 3.5 from 0: the sum of four uniform numbers.
  float Normal();

 private:
  uint64_t state_;
};

// Encoded pieces of `unit` values each, normal with the given deviation.
class BlockPool {
 public:
  // `unit` is a whole number of the type's blocks. Throws Error(kUnsupported) for a type that this
  // build does not write.
  BlockPool(model::TensorType type, size_t unit, double deviation, uint64_t seed, int32_t threads);

  // Puts randomly chosen pieces into `rows`, which holds a whole number of them.
  void Fill(Random& random, std::span<std::byte> rows) const;

 private:
  size_t unit_bytes_;
  std::vector<std::byte> bytes_;
};

// One row of values as `type`; as BlockPool's constructor throws, and Error(kBadModel) when the
// type cannot hold a value.
void EncodeRow(model::TensorType type, std::span<const float> values, std::span<std::byte> row);

// What locality plants (docs/tools.md): every token has a topic, every topic its experts. Of 0
// topics nothing is planted.
class Topics {
 public:
  // `share` of a row's picks, 0 to 1, that should be its topic's experts.
  Topics(uint64_t seed, uint64_t width, uint64_t experts, uint64_t picks, double share);

  uint64_t count() const { return count_; }
  // Adds the token's topic to its embedding, whose values have deviation 1, and keeps it so.
  void AddToEmbedding(uint64_t token, std::span<float> row) const;
  // Adds to each row of a router, whose logits have deviation 1, its topic's direction. The experts
  // of a topic are others in each layer.
  void AddToRouter(std::string_view name, std::span<float> rows) const;

  // From now on heads carry topics: `share` of greedy steps, 0 to 1, should stay with the topic of
  // the token before, in the mean over the tokens of a vocabulary.
  void SetStay(double share, uint64_t vocabulary);
  bool stays() const { return stay_ > 0; }
  // Adds the token's topic to its row of the head, whose logits have deviation `gain`.
  void AddToHead(uint64_t token, double gain, std::span<float> row) const;

  uint64_t TopicOf(uint64_t token) const;

 private:
  uint64_t seed_;
  uint64_t width_;
  uint64_t experts_;
  uint64_t picks_;
  uint64_t count_ = 0;
  double boost_ = 0;               // of a topic's experts' logits
  double stay_ = 0;                // of a topic's tokens' logits
  std::vector<float> directions_;  // [count, width] of -1 and 1
  std::vector<double> bounds_;     // of TopicOf, ascending to 1
};

}  // namespace bloomery::apps

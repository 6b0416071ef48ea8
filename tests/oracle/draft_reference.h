// The draft block of a hybrid model by its formulas, row by row in double and without any kernel of
// the product: what a seat's draft is held against.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/inventory.h"

namespace bloomery::test {

class DraftReference {
 public:
  // `layer` is the block's: "blk.{layer}.".
  DraftReference(const model::ModelFile& model, size_t layer);

  using Vector = std::vector<double>;
  // The row of `token`, with the hidden state before it, at the next position. Gives the hidden
  // state that the block guesses behind it.
  Vector Step(int32_t token, const Vector& before);
  // The logits of such a state.
  Vector Logits(const Vector& hidden) const;
  // Forgets the last `rows` rows.
  void Cut(size_t rows);

  size_t width() const { return width_; }

 private:
  struct Matrix {
    size_t columns = 0;
    std::vector<float> values;
    Vector Times(std::span<const double> x, size_t first = 0, size_t rows = SIZE_MAX) const;
  };
  Matrix Read(const std::string& name) const;
  Matrix ReadOwn(const std::string& name) const { return Read(prefix_ + name + ".weight"); }
  Vector Norm(std::span<const double> x, const Matrix& weight) const;
  void Rotate(std::span<double> head, size_t position) const;
  Vector Attend(const Vector& x);
  Vector FeedForward(const Vector& x) const;

  const model::ModelFile& model_;
  std::string prefix_;
  size_t width_, heads_, kv_heads_, dim_, rope_, experts_, used_, ff_;
  double rope_base_, eps_;
  Matrix embedding_, head_, enorm_, hnorm_, join_, head_norm_, attn_norm_, q_, k_, v_, q_norm_,
      k_norm_, out_, ffn_norm_, router_, gate_, up_, down_, shared_gate_, shared_gate_proj_,
      shared_up_, shared_down_;
  std::vector<Vector> keys_, values_;
};

}  // namespace bloomery::test

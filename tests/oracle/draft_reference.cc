#include "tests/oracle/draft_reference.h"

#include <algorithm>
#include <numeric>

#include "runtime/ops/row_codec.h"

namespace bloomery::test {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Silu(double x) { return x * Sigmoid(x); }

void AddTo(std::vector<double>& x, std::span<const double> more, double scale = 1) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += scale * more[i];
}

}  // namespace

DraftReference::Vector DraftReference::Matrix::Times(std::span<const double> x, size_t first,
                                                     size_t rows) const {
  rows = std::min(rows, values.size() / columns - first);
  Vector y(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      y[r] += static_cast<double>(values[(first + r) * columns + c]) * x[c];
    }
  }
  return y;
}

DraftReference::Matrix DraftReference::Read(const std::string& name) const {
  const size_t index = model_.GetTensorIndex(name);
  const model::TensorInfo& info = model_.tensors()[index];
  const std::vector<std::byte> bytes = model_.ReadTensor(index);
  Matrix matrix{info.ne[0], std::vector<float>(info.rows() * info.ne[0])};
  ops::RowCodecOf(static_cast<uint32_t>(info.type))
      .decode(bytes.data(), matrix.values.data(), matrix.values.size());
  return matrix;
}

DraftReference::DraftReference(const model::ModelFile& model, size_t layer)
    : model_(model), prefix_("blk." + std::to_string(layer) + ".") {
  const std::string arch(model.metadata().GetString("general.architecture"));
  const auto number = [&](const char* key) { return model.metadata().GetU64(arch + "." + key); };
  width_ = number("embedding_length");
  heads_ = number("attention.head_count");
  kv_heads_ = number("attention.head_count_kv");
  dim_ = number("attention.key_length");
  rope_ = number("rope.dimension_count");
  experts_ = number("expert_count");
  used_ = number("expert_used_count");
  ff_ = number("expert_feed_forward_length");
  rope_base_ = 1e7;
  eps_ = 1e-6;
  embedding_ = Read("token_embd.weight");
  head_ = Read("output.weight");
  enorm_ = ReadOwn("nextn.enorm");
  hnorm_ = ReadOwn("nextn.hnorm");
  join_ = ReadOwn("nextn.eh_proj");
  head_norm_ = ReadOwn("nextn.shared_head_norm");
  attn_norm_ = ReadOwn("attn_norm");
  q_ = ReadOwn("attn_q");
  k_ = ReadOwn("attn_k");
  v_ = ReadOwn("attn_v");
  q_norm_ = ReadOwn("attn_q_norm");
  k_norm_ = ReadOwn("attn_k_norm");
  out_ = ReadOwn("attn_output");
  ffn_norm_ = ReadOwn("post_attention_norm");
  router_ = ReadOwn("ffn_gate_inp");
  gate_ = ReadOwn("ffn_gate_exps");
  up_ = ReadOwn("ffn_up_exps");
  down_ = ReadOwn("ffn_down_exps");
  shared_gate_ = ReadOwn("ffn_gate_inp_shexp");
  shared_gate_proj_ = ReadOwn("ffn_gate_shexp");
  shared_up_ = ReadOwn("ffn_up_shexp");
  shared_down_ = ReadOwn("ffn_down_shexp");
}

DraftReference::Vector DraftReference::Norm(std::span<const double> x, const Matrix& weight) const {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps_);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * static_cast<double>(weight.values[i]);
  return y;
}

void DraftReference::Rotate(std::span<double> head, size_t position) const {
  for (size_t i = 0; i < rope_ / 2; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(rope_base_, -2.0 * static_cast<double>(i) / static_cast<double>(rope_));
    const double a = head[i];
    const double b = head[i + rope_ / 2];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + rope_ / 2] = b * std::cos(angle) + a * std::sin(angle);
  }
}

// Each head's queries are followed by its gates; every head reads its own share of the kv heads.
DraftReference::Vector DraftReference::Attend(const Vector& x) {
  const size_t position = keys_.size();
  Vector keys = k_.Times(x);
  for (size_t h = 0; h < kv_heads_; ++h) {
    const std::span<double> head(keys.data() + h * dim_, dim_);
    std::ranges::copy(Norm(head, k_norm_), head.begin());
    Rotate(head, position);
  }
  keys_.push_back(keys);
  values_.push_back(v_.Times(x));
  const Vector both = q_.Times(x);
  Vector mixed(heads_ * dim_);
  for (size_t h = 0; h < heads_; ++h) {
    Vector query = Norm(std::span(both).subspan(2 * h * dim_, dim_), q_norm_);
    Rotate(query, position);
    const size_t kv = h * kv_heads_ / heads_ * dim_;
    Vector shares(keys_.size());
    for (size_t j = 0; j < keys_.size(); ++j) {
      for (size_t i = 0; i < dim_; ++i) shares[j] += query[i] * keys_[j][kv + i];
      shares[j] /= std::sqrt(static_cast<double>(dim_));
    }
    const double top = *std::ranges::max_element(shares);
    double sum = 0;
    for (double& share : shares) sum += share = std::exp(share - top);
    for (size_t i = 0; i < dim_; ++i) {
      for (size_t j = 0; j < keys_.size(); ++j) {
        mixed[h * dim_ + i] += shares[j] / sum * values_[j][kv + i];
      }
      mixed[h * dim_ + i] *= Sigmoid(both[(2 * h + 1) * dim_ + i]);
    }
  }
  return out_.Times(mixed);
}

DraftReference::Vector DraftReference::FeedForward(const Vector& x) const {
  const Vector logits = router_.Times(x);
  std::vector<size_t> order(experts_);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  order.resize(used_);
  double sum = 0;
  for (const size_t e : order) sum += std::exp(logits[e]);
  Vector out(width_);
  for (const size_t e : order) {
    Vector inner = gate_.Times(x, e * ff_, ff_);
    const Vector up = up_.Times(x, e * ff_, ff_);
    for (size_t i = 0; i < ff_; ++i) inner[i] = Silu(inner[i]) * up[i];
    AddTo(out, down_.Times(inner, e * width_, width_), std::exp(logits[e]) / sum);
  }
  Vector inner = shared_gate_proj_.Times(x);
  const Vector up = shared_up_.Times(x);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = Silu(inner[i]) * up[i];
  AddTo(out, shared_down_.Times(inner), Sigmoid(shared_gate_.Times(x)[0]));
  return out;
}

DraftReference::Vector DraftReference::Step(int32_t token, const Vector& before) {
  const auto row =
      embedding_.values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * width_);
  Vector joined = Norm(Vector(row, row + static_cast<std::ptrdiff_t>(width_)), enorm_);
  const Vector hidden = Norm(before, hnorm_);
  joined.insert(joined.end(), hidden.begin(), hidden.end());
  Vector x = join_.Times(joined);
  AddTo(x, Attend(Norm(x, attn_norm_)));
  AddTo(x, FeedForward(Norm(x, ffn_norm_)));
  return Norm(x, head_norm_);
}

DraftReference::Vector DraftReference::Logits(const Vector& hidden) const {
  return head_.Times(hidden);
}

void DraftReference::Cut(size_t rows) {
  keys_.resize(keys_.size() - rows);
  values_.resize(values_.size() - rows);
}

}  // namespace bloomery::test

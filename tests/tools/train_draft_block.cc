// Makes a draft block for the mini qwen35moe model, trained on what the model itself says:
//
//   train_draft_block tests/data/mini/qwen35moe/model.gguf tests/data/mini/qwen35moe/model-mtp.gguf
//
// Sequences are drawn from the model; the target of row p is its hidden state behind row p, from
// the token of row p and the hidden state before it. The block is fitted part by part: the join by
// least squares, then the output of attention over random queries, keys, values and gates, then
// what comes down from random experts; each on what the parts before leave. Deterministic but for
// the kernels' bits, which are the same on every machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/gguf_writer.h"
#include "runtime/ops/row_codec.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/tools/least_squares.h"

namespace bloomery::test {
namespace {

using Row = std::vector<float>;

// The mini model's.
constexpr size_t kWidth = 128, kHeads = 2, kDim = 256, kRope = 64, kExperts = 8, kUsed = 2,
                 kFf = 64;
constexpr double kRopeBase = 1e7, kEps = 1e-6;
constexpr int32_t kLength = 150, kSlots = 8, kRounds = 24;
constexpr double kDecay = 1e-4;
constexpr size_t kHeldOut = 16;  // sequences, for the figures that are printed

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<Row> hidden;  // behind each token
};

float RoundBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// [rows][columns], as in the file.
struct Matrix {
  size_t columns = 0;
  Row values;
  size_t rows() const { return values.size() / columns; }
  void Times(std::span<const float> x, std::span<float> y) const {
    for (size_t r = 0; r < rows(); ++r) {
      float sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += values[r * columns + c] * x[c];
      y[r] = sum;
    }
  }
  Row Times(std::span<const float> x) const {
    Row y(rows());
    Times(x, y);
    return y;
  }
};

Matrix Rounded(size_t columns, Row values) {
  for (float& value : values) value = RoundBf16(value);
  return {columns, std::move(values)};
}

Matrix Random(std::mt19937& random, size_t rows, size_t columns, double gain = 1) {
  std::normal_distribution<double> normal(0, gain / std::sqrt(static_cast<double>(columns)));
  Row values(rows * columns);
  for (float& value : values) value = static_cast<float>(normal(random));
  return Rounded(columns, std::move(values));
}

void Normalise(std::span<float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + kEps);
  for (float& v : x) v = static_cast<float>(static_cast<double>(v) * scale);
}
Row Normed(Row x) {
  Normalise(x);
  return x;
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void Rotate(std::span<float> head, size_t position) {
  for (size_t i = 0; i < kRope / 2; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(kRopeBase, -2.0 * static_cast<double>(i) / static_cast<double>(kRope));
    const auto c = static_cast<float>(std::cos(angle));
    const auto s = static_cast<float>(std::sin(angle));
    const float a = head[i];
    const float b = head[i + kRope / 2];
    head[i] = a * c - b * s;
    head[i + kRope / 2] = b * c + a * s;
  }
}

class Trainer {
 public:
  Trainer(const std::string& path, const std::string& out) : path_(path), out_(out) {}

  void Run() {
    exec::SeatOptions options;
    options.slots = kSlots;
    options.slot_context = kLength + 1;
    options.rows_max = 16;
    options.k_type = options.v_type = BL_F32;
    options.observe = {"hidden"};
    LoadedSeat seat = LoadThroughPlugin(path_, options);
    model_ = seat.model.get();
    embedding_ = ReadMatrix("token_embd.weight", kWidth);
    head_ = ReadMatrix("output.weight", kWidth);
    output_norm_ = ReadMatrix("output_norm.weight", kWidth).values;
    Draw(*seat.seat);
    FitJoin();
    FitAttention();
    FitExperts();
    Write();
  }

 private:
  Matrix ReadMatrix(const std::string& name, size_t columns) const {
    const size_t index = model_->GetTensorIndex(name);
    const model::TensorInfo& info = model_->tensors()[index];
    const std::vector<std::byte> bytes = model_->ReadTensor(index);
    Matrix matrix{columns, Row(info.rows() * columns)};
    ops::RowCodecOf(static_cast<uint32_t>(info.type))
        .decode(bytes.data(), matrix.values.data(), matrix.values.size());
    return matrix;
  }

  // From the end of a document on, at temperature 1.
  void Draw(exec::Seat& seat) {
    std::mt19937 random(20261130);
    for (int32_t round = 0; round < kRounds; ++round) {
      std::vector<Sequence> drawn(kSlots);
      std::vector<int32_t> next(kSlots, 0);
      std::vector<exec::PassRow> rows;
      for (int32_t i = 0; i < kLength; ++i) {
        rows.clear();
        for (int32_t s = 0; s < kSlots; ++s) {
          rows.push_back(
              {.slot = s, .index = i, .token = next[static_cast<size_t>(s)], .logits = true});
        }
        seat.Run(rows);
        const std::span<const float> hidden = seat.Observe("hidden").Floats();
        for (size_t s = 0; s < drawn.size(); ++s) {
          drawn[s].tokens.push_back(next[s]);
          drawn[s].hidden.emplace_back(
              hidden.begin() + static_cast<std::ptrdiff_t>(s * kWidth),
              hidden.begin() + static_cast<std::ptrdiff_t>((s + 1) * kWidth));
          next[s] = Sample(seat.Logits(static_cast<int32_t>(s)), random);
        }
      }
      for (int32_t s = 0; s < kSlots; ++s) seat.Cut(s, 0);
      std::ranges::move(drawn, std::back_inserter(sequences_));
    }
    state_.resize(sequences_.size());
  }

  static int32_t Sample(std::span<const float> logits, std::mt19937& random) {
    const float top = *std::ranges::max_element(logits);
    std::vector<double> weights;
    for (const float logit : logits) weights.push_back(std::exp(static_cast<double>(logit - top)));
    return std::discrete_distribution<int32_t>(weights.begin(), weights.end())(random);
  }

  bool Held(size_t s) const { return s < kHeldOut; }

  Row Target(size_t s, size_t p) const {
    Row target = sequences_[s].hidden[p];
    for (size_t i = 0; i < kWidth; ++i) target[i] /= output_norm_[i];
    return target;
  }
  Row Left(size_t s, size_t p) const {
    Row left = Target(s, p);
    for (size_t i = 0; i < kWidth; ++i) left[i] -= state_[s][p][i];
    return left;
  }

  // Fits targets to `features(s, p)`, adds what that gives to the states, and returns the matrix.
  template <typename Features>
  Matrix Fit(size_t count, const Features& features, const char* name) {
    LeastSquares fit(count, kWidth);
    std::vector<std::vector<Row>> all(sequences_.size());
    for (size_t s = 0; s < sequences_.size(); ++s) {
      all[s] = features(s);
      for (size_t p = 0; p < all[s].size() && !Held(s); ++p) fit.Add(all[s][p], Left(s, p));
    }
    const Matrix matrix = Rounded(count, fit.Solve(kDecay));
    size_t right = 0;
    size_t rows = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (size_t p = 0; p < all[s].size(); ++p) {
        const Row more = matrix.Times(all[s][p]);
        for (size_t i = 0; i < kWidth; ++i) state_[s][p][i] += more[i];
        if (!Held(s)) continue;
        Row guess = Normed(state_[s][p]);
        for (size_t i = 0; i < kWidth; ++i) guess[i] *= output_norm_[i];
        right += Best(guess) == Best(sequences_[s].hidden[p]) ? 1 : 0;
        ++rows;
      }
    }
    std::printf("%s: %.1f %% of %zu held-out rows have the model's own best token\n", name,
                100.0 * static_cast<double>(right) / static_cast<double>(rows), rows);
    return matrix;
  }
  int32_t Best(std::span<const float> hidden) const { return Argmax(head_.Times(hidden)); }

  void FitJoin() {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      state_[s].assign(sequences_[s].tokens.size(), Row(kWidth));
    }
    join_ = Fit(
        2 * kWidth,
        [&](size_t s) {
          const Sequence& sequence = sequences_[s];
          std::vector<Row> rows;
          for (size_t p = 0; p < sequence.tokens.size(); ++p) {
            const auto at = static_cast<size_t>(sequence.tokens[p]) * kWidth;
            Row row(embedding_.values.begin() + static_cast<std::ptrdiff_t>(at),
                    embedding_.values.begin() + static_cast<std::ptrdiff_t>(at + kWidth));
            Normalise(row);
            const Row before = Normed(p == 0 ? Row(kWidth) : sequence.hidden[p - 1]);
            row.insert(row.end(), before.begin(), before.end());
            rows.push_back(std::move(row));
          }
          return rows;
        },
        "join");
  }

  void FitAttention() {
    std::mt19937 random(1);
    q_ = Random(random, 2 * kHeads * kDim, kWidth);
    k_ = Random(random, kDim, kWidth);
    v_ = Random(random, kDim, kWidth);
    out_matrix_ = Fit(kHeads * kDim, [&](size_t s) { return Attend(state_[s]); }, "attention");
  }

  // Of every row of a sequence: both heads' gated outputs.
  std::vector<Row> Attend(const std::vector<Row>& rows) const {
    std::vector<Row> keys, values, mixed;
    for (size_t p = 0; p < rows.size(); ++p) {
      const Row x = Normed(rows[p]);
      Row key = Normed(k_.Times(x));
      Rotate(key, p);
      keys.push_back(std::move(key));
      values.push_back(v_.Times(x));
      Row queries = q_.Times(x);
      Row& out = mixed.emplace_back(kHeads * kDim);
      for (size_t h = 0; h < kHeads; ++h) {
        const std::span<float> query(queries.data() + 2 * h * kDim, kDim);
        const std::span<const float> gates(queries.data() + (2 * h + 1) * kDim, kDim);
        Normalise(query);
        Rotate(query, p);
        Mix(query, gates, keys, values, std::span(out).subspan(h * kDim, kDim));
      }
    }
    return mixed;
  }

  static void Mix(std::span<const float> query, std::span<const float> gates,
                  const std::vector<Row>& keys, const std::vector<Row>& values,
                  std::span<float> out) {
    std::vector<double> scores;
    double top = -1e30;
    for (const Row& key : keys) {
      double dot = 0;
      for (size_t i = 0; i < kDim; ++i) dot += static_cast<double>(query[i] * key[i]);
      scores.push_back(dot / std::sqrt(static_cast<double>(kDim)));
      top = std::max(top, scores.back());
    }
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (size_t j = 0; j < keys.size(); ++j) {
      const auto share = static_cast<float>(scores[j] / sum);
      for (size_t i = 0; i < kDim; ++i) out[i] += share * values[j][i];
    }
    for (size_t i = 0; i < kDim; ++i) out[i] *= Sigmoid(gates[i]);
  }

  void FitExperts() {
    std::mt19937 random(2);
    router_ = Random(random, kExperts, kWidth, 4);
    gate_ = Random(random, (kExperts + 1) * kFf, kWidth, 2);  // the shared expert's last
    up_ = Random(random, (kExperts + 1) * kFf, kWidth);
    shared_gate_ = Random(random, 1, kWidth);
    down_ = Fit((kExperts + 1) * kFf,
                [&](size_t s) {
                  std::vector<Row> rows;
                  for (const Row& state : state_[s]) rows.push_back(Inner(Normed(state)));
                  return rows;
                },
                "experts");
  }

  // What the experts' down matrices see, those that were not picked as zeros.
  Row Inner(const Row& x) const {
    const Row logits = router_.Times(x);
    std::vector<size_t> order(kExperts);
    for (size_t e = 0; e < kExperts; ++e) order[e] = e;
    std::ranges::sort(order, [&](size_t a, size_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    });
    float sum = 0;
    for (size_t i = 0; i < kUsed; ++i) sum += std::exp(logits[order[i]] - logits[order[0]]);
    Row weights(kExperts + 1);
    for (size_t i = 0; i < kUsed; ++i) {
      weights[order[i]] = std::exp(logits[order[i]] - logits[order[0]]) / sum;
    }
    weights[kExperts] = Sigmoid(shared_gate_.Times(x)[0]);
    const Row gate = gate_.Times(x);
    const Row up = up_.Times(x);
    Row inner((kExperts + 1) * kFf);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] = weights[i / kFf] * gate[i] * Sigmoid(gate[i]) * up[i];
    }
    return inner;
  }

  // Rows [first, first + count) of a matrix, or of each row such columns.
  static Row Rows(const Matrix& matrix, size_t first, size_t count) {
    const auto begin = matrix.values.begin() + static_cast<std::ptrdiff_t>(first * matrix.columns);
    return {begin, begin + static_cast<std::ptrdiff_t>(count * matrix.columns)};
  }
  static Row Columns(const Matrix& matrix, size_t first, size_t count) {
    Row out;
    for (size_t r = 0; r < matrix.rows(); ++r) {
      const auto begin =
          matrix.values.begin() + static_cast<std::ptrdiff_t>(r * matrix.columns + first);
      out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return out;
  }

  struct Made {
    std::string name;
    model::TensorType type;
    std::vector<uint64_t> ne;
    Row values;
  };

  std::vector<Made> Block() const {
    std::vector<Made> made;
    const auto matrix = [&](const char* name, std::vector<uint64_t> ne, Row values) {
      made.push_back({std::string("blk.4.") + name + ".weight", model::TensorType::kBF16,
                      std::move(ne), std::move(values)});
    };
    const auto plain = [&](const char* name, std::vector<uint64_t> ne, Row values) {
      made.push_back({std::string("blk.4.") + name + ".weight", model::TensorType::kF32,
                      std::move(ne), std::move(values)});
    };
    const Row ones(kDim, 1.0F);
    const Row wide(kWidth, 1.0F);
    plain("nextn.enorm", {kWidth}, wide);
    plain("nextn.hnorm", {kWidth}, wide);
    matrix("nextn.eh_proj", {2 * kWidth, kWidth}, join_.values);
    plain("nextn.shared_head_norm", {kWidth}, output_norm_);
    plain("attn_norm", {kWidth}, wide);
    matrix("attn_q", {kWidth, 2 * kHeads * kDim}, q_.values);
    matrix("attn_k", {kWidth, kDim}, k_.values);
    matrix("attn_v", {kWidth, kDim}, v_.values);
    plain("attn_q_norm", {kDim}, ones);
    plain("attn_k_norm", {kDim}, ones);
    matrix("attn_output", {kHeads * kDim, kWidth}, out_matrix_.values);
    plain("post_attention_norm", {kWidth}, wide);
    plain("ffn_gate_inp", {kWidth, kExperts}, router_.values);
    matrix("ffn_gate_exps", {kWidth, kFf, kExperts}, Rows(gate_, 0, kExperts * kFf));
    matrix("ffn_up_exps", {kWidth, kFf, kExperts}, Rows(up_, 0, kExperts * kFf));
    Row down;
    for (size_t e = 0; e < kExperts; ++e) {
      const Row expert = Columns(down_, e * kFf, kFf);
      down.insert(down.end(), expert.begin(), expert.end());
    }
    matrix("ffn_down_exps", {kFf, kWidth, kExperts}, std::move(down));
    plain("ffn_gate_inp_shexp", {kWidth}, shared_gate_.values);
    matrix("ffn_gate_shexp", {kWidth, kFf}, Rows(gate_, kExperts * kFf, kFf));
    matrix("ffn_up_shexp", {kWidth, kFf}, Rows(up_, kExperts * kFf, kFf));
    matrix("ffn_down_shexp", {kFf, kWidth}, Columns(down_, kExperts * kFf, kFf));
    return made;
  }

  void Write() const {
    const std::vector<Made> block = Block();
    model::GgufWriter writer(out_);
    writer.AddAll(model_->metadata());
    writer.Add("general.name", model::StringValue("mini qwen35moe with a draft block"));
    writer.Add("qwen35moe.block_count", model::U32Value(5));
    writer.Add("qwen35moe.nextn_predict_layers", model::U32Value(1));
    constexpr char kRecurrent[] = {1, 1, 1, 0, 0};
    writer.Add(
        "qwen35moe.attention.recurrent_layers",
        {model::ValueKind::kArray,
         model::MetadataArray::OfNumbers(model::ValueKind::kBool,
                                         std::string(std::begin(kRecurrent), std::end(kRecurrent))),
         0});
    for (const model::TensorInfo& tensor : model_->tensors()) {
      writer.AddTensor(tensor.name, tensor.type, std::span(tensor.ne).first(tensor.n_dims));
    }
    for (const Made& tensor : block) writer.AddTensor(tensor.name, tensor.type, tensor.ne);
    writer.BeginData();
    for (size_t i = 0; i < model_->tensors().size(); ++i) {
      writer.WriteData(model_->ReadTensor(i));
    }
    for (const Made& tensor : block) {
      std::vector<std::byte> bytes;
      for (const float value : tensor.values) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        const bool half = tensor.type == model::TensorType::kBF16;
        for (uint32_t b = half ? 2 : 0; b < 4; ++b) {
          bytes.push_back(static_cast<std::byte>((bits >> (8 * b)) & 0xFF));
        }
      }
      writer.WriteData(bytes);
    }
    writer.Finish();
  }

  std::string path_, out_;
  const model::ModelFile* model_ = nullptr;
  Matrix embedding_, head_;
  Row output_norm_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<Row>> state_;  // the residual stream so far, by sequence and row
  Matrix join_, q_, k_, v_, out_matrix_, router_, gate_, up_, shared_gate_, down_;
};

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_draft_block MODEL.gguf OUT.gguf\n");
    return 1;
  }
  bloomery::test::Trainer(argv[1], argv[2]).Run();
  return 0;
}

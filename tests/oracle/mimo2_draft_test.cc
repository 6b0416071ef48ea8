// The draft layers of a sliding model in a file of their own: joined with the model's file they
// guess what their formula says, and answers stay those without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/model/draft_file.h"
#include "runtime/model/gguf.h"
#include "runtime/model/gguf_writer.h"
#include "runtime/ops/row_codec.h"
#include "runtime/plugin/select.h"
#include "runtime/text/vocabulary.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

using Ids = std::vector<int32_t>;
using Row = std::vector<double>;

// The mini model's.
constexpr size_t kWidth = 128, kHeads = 2, kKvHeads = 2, kKeyDim = 192, kValueDim = 128, kRope = 64,
                 kFf = 128, kWindow = 32;
constexpr double kBase = 1e4, kEps = 1e-5, kValueScale = 0.707F;

std::string TrunkPath() { return SourceDir() + "/tests/data/mini/mimo2/model.gguf"; }

// A file of three draft layers behind the model's six, of random weights.
void WriteDraftFile(const std::string& path, int64_t first_kv_heads = 1) {
  const model::ModelFile trunk = model::OpenGguf(RealFileSystem(), TrunkPath());
  model::GgufWriter writer(path);
  writer.AddAll(trunk.metadata());
  writer.Add("mimo2.block_count", model::U32Value(9));
  writer.Add("mimo2.nextn_predict_layers", model::U32Value(3));
  const auto first = static_cast<int32_t>(first_kv_heads);
  const std::vector<int32_t> kv_heads = {first, 2, 2, 2, 2, 1, 2, 2, 2};
  const std::vector<int32_t> sliding = {0, 1, 1, 1, 1, 0, 1, 1, 1};
  writer.Add("mimo2.attention.head_count_kv", model::I32ArrayValue(kv_heads));
  writer.Add("mimo2.attention.sliding_window_pattern", model::I32ArrayValue(sliding));
  struct Tensor {
    std::string name;
    std::vector<uint64_t> ne;
    double mean, deviation;
  };
  std::vector<Tensor> tensors;
  for (int layer = 6; layer < 9; ++layer) {
    const auto add = [&](const char* name, std::vector<uint64_t> ne, double mean = 0,
                         double gain = 1) {
      const double deviation =
          mean == 0 ? gain / std::sqrt(static_cast<double>(ne[0])) : 0.1 * gain;
      tensors.push_back(
          {"blk." + std::to_string(layer) + "." + name + ".weight", ne, mean, deviation});
    };
    add("attn_norm", {kWidth}, 1);
    add("attn_qkv", {kWidth, kHeads * kKeyDim + kKvHeads * (kKeyDim + kValueDim)}, 0, 2);
    add("attn_output", {kHeads * kValueDim, kWidth});
    add("attn_sinks", {kHeads}, 0, 1);
    add("ffn_norm", {kWidth}, 1);
    add("ffn_gate", {kWidth, kFf});
    add("ffn_up", {kWidth, kFf});
    add("ffn_down", {kFf, kWidth});
    add("layer_output_norm", {kWidth}, 1);
    add("nextn.eh_proj", {2 * kWidth, kWidth});
    add("nextn.enorm", {kWidth}, 1);
    add("nextn.hnorm", {kWidth}, 1);
  }
  for (const Tensor& tensor : tensors) {
    writer.AddTensor(tensor.name, model::TensorType::kF32, tensor.ne);
  }
  writer.BeginData();
  std::mt19937 random(5);
  for (const Tensor& tensor : tensors) {
    std::normal_distribution<float> normal(static_cast<float>(tensor.mean),
                                           static_cast<float>(tensor.deviation));
    std::vector<float> values(
        std::accumulate(tensor.ne.begin(), tensor.ne.end(), size_t{1}, std::multiplies()));
    for (float& value : values) value = normal(random);
    writer.WriteData(std::as_bytes(std::span(values)));
  }
  writer.Finish();
}

exec::SeatOptions Options(int32_t slots, bool head) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context = 256;
  options.rows_max = 64;
  options.threads = 2;
  options.window_rows = 4;
  options.drafts = head;
  options.k_type = options.v_type = BL_F32;
  return options;
}

// By its formula, in double; spec: e and h joined, one sliding layer, a dense block.
class Reference {
 public:
  Reference(const model::ModelFile& model, size_t layer)
      : model_(model), prefix_("blk." + std::to_string(layer) + ".") {}

  Row Step(int32_t token, const Row& before) {
    const std::vector<float> table = Read("token_embd.weight");
    Row embedded(kWidth);
    for (size_t i = 0; i < kWidth; ++i) {
      embedded[i] = static_cast<double>(table[static_cast<size_t>(token) * kWidth + i]);
    }
    Row both = Norm(embedded, Own("nextn.enorm"));
    const Row hidden = Norm(before, Own("nextn.hnorm"));
    both.insert(both.end(), hidden.begin(), hidden.end());
    Row x = Times(Own("nextn.eh_proj"), both);
    AddTo(x, Attend(Norm(x, Own("attn_norm"))));
    const Row inner = Norm(x, Own("ffn_norm"));
    Row gate = Times(Own("ffn_gate"), inner);
    const Row up = Times(Own("ffn_up"), inner);
    for (size_t i = 0; i < kFf; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    AddTo(x, Times(Own("ffn_down"), gate));
    return x;
  }
  Row Logits(const Row& x) const {
    return Times(Read("output.weight"), Norm(x, Own("layer_output_norm")));
  }
  void Cut(size_t rows) {
    keys_.resize(keys_.size() - rows);
    values_.resize(values_.size() - rows);
  }

 private:
  std::vector<float> Read(const std::string& name) const {
    const size_t index = model_.GetTensorIndex(name);
    const model::TensorInfo& info = model_.tensors()[index];
    const std::vector<std::byte> bytes = model_.ReadTensor(index);
    std::vector<float> values(info.rows() * info.ne[0]);
    ops::RowCodecOf(static_cast<uint32_t>(info.type))
        .decode(bytes.data(), values.data(), values.size());
    return values;
  }
  std::vector<float> Own(const std::string& name) const { return Read(prefix_ + name + ".weight"); }
  static Row Times(const std::vector<float>& matrix, std::span<const double> x) {
    Row y(matrix.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) {
        y[r] += static_cast<double>(matrix[r * x.size() + c]) * x[c];
      }
    }
    return y;
  }
  static void AddTo(Row& x, const Row& more) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += more[i];
  }
  static Row Norm(const Row& x, const std::vector<float>& weight) {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * static_cast<double>(weight[i]);
    return y;
  }
  static void Turn(std::span<double> head, size_t position) {
    for (size_t i = 0; i < kRope / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(kBase, -2.0 * static_cast<double>(i) / double{kRope});
      const double a = head[i];
      const double b = head[i + kRope / 2];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + kRope / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  Row Attend(const Row& x) {
    const size_t position = keys_.size();
    const Row all = Times(Own("attn_qkv"), x);
    Row queries(all.begin(), all.begin() + kHeads * kKeyDim);
    Row keys(all.begin() + kHeads * kKeyDim, all.begin() + (kHeads + kKvHeads) * kKeyDim);
    Row values(all.begin() + (kHeads + kKvHeads) * kKeyDim, all.end());
    for (double& value : values) value *= kValueScale;
    for (size_t h = 0; h < kKvHeads; ++h)
      Turn(std::span(keys).subspan(h * kKeyDim, kKeyDim), position);
    keys_.push_back(keys);
    values_.push_back(values);
    const std::vector<float> sinks = Own("attn_sinks");
    Row mixed(kHeads * kValueDim);
    const size_t begin = position + 1 > kWindow ? position + 1 - kWindow : 0;
    for (size_t h = 0; h < kHeads; ++h) {
      Turn(std::span(queries).subspan(h * kKeyDim, kKeyDim), position);
      const size_t kv = h * kKvHeads / kHeads;
      double sum = std::exp(static_cast<double>(sinks[h]));
      std::vector<double> shares;
      for (size_t j = begin; j <= position; ++j) {
        double score = 0;
        for (size_t i = 0; i < kKeyDim; ++i) {
          score += queries[h * kKeyDim + i] * keys_[j][kv * kKeyDim + i];
        }
        shares.push_back(std::exp(score / std::sqrt(double{kKeyDim})));
        sum += shares.back();
      }
      for (size_t j = begin; j <= position; ++j) {
        for (size_t i = 0; i < kValueDim; ++i) {
          mixed[h * kValueDim + i] += shares[j - begin] / sum * values_[j][kv * kValueDim + i];
        }
      }
    }
    return Times(Own("attn_output"), mixed);
  }

  const model::ModelFile& model_;
  std::string prefix_;
  std::vector<Row> keys_, values_;
};

class Mimo2Draft : public testing::Test {
 protected:
  LoadedSeat Load(const exec::SeatOptions& options) {
    if (path_.empty()) {
      path_ = folder_.File("mtp.gguf");
      WriteDraftFile(path_);
    }
    LoadedSeat joined;
    joined.model = std::make_unique<model::ModelFile>(model::WithDraftFile(
        model::OpenGguf(RealFileSystem(), TrunkPath()), model::OpenGguf(RealFileSystem(), path_)));
    const plugin::SearchFolder built = {.path = BinaryDir() + "/plugins", .origin = "the build"};
    const plugin::Selection selected = plugin::Select(*joined.model, plugin::Discover({&built, 1}));
    joined.instance = std::make_unique<plugin::Instance>(selected.plugin, *joined.model,
                                                         exec::InstanceOptionsOf(options));
    joined.seat = exec::LoadSeat(*joined.model, *joined.instance, options);
    return joined;
  }

  TempDir folder_;
  std::string path_;
};

Ids SomeIds(size_t count) {
  Ids ids;
  uint32_t state = 3;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((state >> 8U) % 1900) + 10);
  }
  return ids;
}

// Past the window twice over, at every depth.
TEST_F(Mimo2Draft, StepsFollowTheFormulaPastTheWindow) {
  exec::SeatOptions options = Options(1, true);
  options.observe = {"layer.6.in"};
  const LoadedSeat joined = Load(options);
  exec::Seat& seat = *joined.seat;
  Reference reference(*joined.model, 6);
  const Ids ids = SomeIds(75);
  Row before(kWidth);
  for (size_t at = 0; at < ids.size(); ++at) {
    const exec::PassRow row = {
        .slot = 0, .index = static_cast<int32_t>(at), .token = ids[at], .logits = true};
    seat.Run({&row, 1});
    reference.Step(ids[at], before);
    const std::span<const float> left = seat.Observe("layer.6.in").Floats();
    before.assign(left.begin(), left.end());
    if (at % 5 != 0) continue;
    int32_t token = 600;
    Row guess = before;
    for (int32_t depth = 0; depth < 3; ++depth) {
      guess = reference.Step(token, guess);
      const Row logits = reference.Logits(guess);
      const exec::DraftRow draft = {.slot = 0, .depth = depth, .token = token};
      const exec::Drafted got = seat.RunDraft({&draft, 1}, true)[0];
      const auto best = std::ranges::max_element(logits);
      ASSERT_EQ(got.token, best - logits.begin()) << "row " << at << ", depth " << depth;
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit - *best);
      ASSERT_NEAR(static_cast<double>(got.probability), 1 / sum, 1e-3);
      token = got.token;
    }
    reference.Cut(3);
  }
}

TEST_F(Mimo2Draft, AnswersAreThoseWithout) {
  const auto ask = [&](bool head) {
    const LoadedSeat joined = Load(Options(2, head));
    const text::Tokenizer tokenizer(text::ReadVocabulary(joined.model->metadata()));
    engine::EngineOptions options;
    if (head) options.draft = {.kind = engine::DraftKind::kMtp, .measured = false};
    engine::Engine engine(*joined.seat, tokenizer, options);
    std::vector<Ids> answers;
    std::vector<std::shared_ptr<engine::Generation>> running;
    for (const size_t length : {5, 50}) {
      engine::GenerateRequest request;
      request.prompt = SomeIds(length);
      request.n_predict = 80;
      request.sampling.temperature = 0;
      running.push_back(engine.Submit(std::move(request)));
    }
    for (const auto& each : running) {
      Ids& tokens = answers.emplace_back();
      while (auto event = each->Pop()) {
        if (const auto* text = std::get_if<engine::Text>(&*event)) {
          tokens.insert(tokens.end(), text->tokens.begin(), text->tokens.end());
        }
      }
    }
    EXPECT_EQ(engine.ReadMetrics().drafts.tokens > 0, head);
    return answers;
  };
  EXPECT_EQ(ask(true), ask(false));
}

TEST_F(Mimo2Draft, AFileThatIsNoDraftOfTheModelIsRefusedByName) {
  const auto refused = [&](const std::string& path) {
    const Refusal refusal = RefusalOf([&] {
      model::WithDraftFile(model::OpenGguf(RealFileSystem(), TrunkPath()),
                           model::OpenGguf(RealFileSystem(), path));
    });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message,
                testing::AllOf(testing::HasSubstr(path), testing::HasSubstr(TrunkPath())));
    return refusal.message;
  };
  EXPECT_THAT(refused(MiniPath()), testing::HasSubstr("its architecture is"));
  EXPECT_THAT(refused(TrunkPath()), testing::HasSubstr("holds no tensor that the model's"));
  const std::string other = folder_.File("other.gguf");
  WriteDraftFile(other, 2);
  EXPECT_THAT(refused(other), testing::HasSubstr("'mimo2.attention.head_count_kv' is another"));
}

}  // namespace
}  // namespace bloomery::test

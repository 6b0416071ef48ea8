#include "runtime/apps/tools/fixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/apps/tools/parallel.h"
#include "runtime/apps/tools/random_weights.h"
#include "runtime/base/error.h"
#include "runtime/model/gguf_writer.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::apps {
namespace {

using model::TensorType;

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTokenTypes = "tokenizer.ggml.token_type";
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;  // encoded and written at a time
constexpr uint64_t kUnitMost = 256;                   // values of a pool's piece

std::vector<std::string> PaddedTokens(const model::MetadataArray& tokens, uint64_t vocabulary) {
  std::vector<std::string> padded;
  padded.reserve(vocabulary);
  for (uint64_t i = 0; i < tokens.size(); ++i) padded.emplace_back(tokens.String(i));
  while (padded.size() < vocabulary) padded.push_back("[PAD" + std::to_string(padded.size()) + "]");
  return padded;
}

void AddTokenizer(model::GgufWriter& writer, const model::Metadata& source, uint64_t vocabulary) {
  const model::MetadataArray& tokens = source.GetStringArray(kTokens);
  if (tokens.size() > vocabulary) {
    throw Error(ErrorKind::kUsage, "--vocab " + std::to_string(vocabulary) +
                                       ": the tokenizer of '" + source.source() + "' has " +
                                       std::to_string(tokens.size()) + " tokens already");
  }
  for (size_t i = 0; i < source.size(); ++i) {
    const std::string_view key = source.key(i);
    if (key.starts_with("tokenizer.")) writer.Add(key, source.value(i));
  }
  writer.Add(kTokens, model::StringArrayValue(PaddedTokens(tokens, vocabulary)));
  std::vector<int32_t> types(tokens.size(), static_cast<int32_t>(text::TokenType::kNormal));
  if (source.Has(kTokenTypes)) {
    const std::vector<int64_t> given = source.GetI64Array(kTokenTypes);
    std::ranges::transform(given, types.begin(), [](int64_t t) { return static_cast<int32_t>(t); });
  }
  types.resize(vocabulary, static_cast<int32_t>(text::TokenType::kUnused));
  writer.Add(kTokenTypes, model::I32ArrayValue(types));
}

// Fills and writes the tensors one after the other.
class TensorWriter {
 public:
  TensorWriter(model::GgufWriter& writer, const FixtureOptions& options, uint64_t layers,
               Topics topics, const std::function<void(uint64_t)>& done)
      : writer_(writer),
        options_(options),
        layers_(layers),
        topics_(std::move(topics)),
        done_(done) {}

  void Write(const FixtureTensor& tensor, TensorType type) {
    switch (tensor.fill) {
      case Fill::kNormal:
        return WritePooled(tensor, type,
                           tensor.gain / std::sqrt(static_cast<double>(tensor.ne[0])));
      case Fill::kEmbedding:
        return topics_.count() == 0 ? WritePooled(tensor, type, tensor.gain)
                                    : WriteEmbedding(tensor, type);
      case Fill::kGains:
        return WriteDrawn(tensor, type, [&](double u) { return tensor.gain * (0.9 + 0.2 * u); });
      case Fill::kUniform:
        return WriteDrawn(tensor, type,
                          [&](double u) { return tensor.low + (tensor.high - tensor.low) * u; });
      case Fill::kRouter:
        return WriteRouter(tensor, type);
      case Fill::kFirstHalf:
        return WriteFirstHalf(tensor, type);
      case Fill::kResidual:
        return WritePooled(tensor, type,
                           ResidualGain(tensor) / std::sqrt(static_cast<double>(tensor.ne[0])));
      case Fill::kHead:
        return topics_.stays()
                   ? WriteHead(tensor, type)
                   : WritePooled(tensor, type,
                                 tensor.gain / std::sqrt(static_cast<double>(tensor.ne[0])));
    }
  }

 private:
  static uint64_t Rows(const FixtureTensor& tensor) {
    return std::accumulate(tensor.ne.begin() + 1, tensor.ne.end(), uint64_t{1}, std::multiplies());
  }
  static uint64_t RowBytes(const FixtureTensor& tensor, TensorType type) {
    const model::TensorTypeInfo& info = model::Info(type);
    return tensor.ne[0] / info.block_values * info.block_bytes;
  }

  // Calls fill(first row, rows, bytes) for pieces of the tensor and writes what it filled.
  void InPieces(const FixtureTensor& tensor, TensorType type,
                const std::function<void(uint64_t, uint64_t, std::span<std::byte>)>& fill) {
    const uint64_t row_bytes = RowBytes(tensor, type);
    const uint64_t rows_piece = std::max<uint64_t>(1, kPieceBytes / row_bytes);
    const uint64_t all = Rows(tensor);
    for (uint64_t row = 0; row < all; row += rows_piece) {
      const uint64_t rows = std::min(rows_piece, all - row);
      bytes_.resize(rows * row_bytes);
      fill(row, rows, bytes_);
      writer_.WriteData(bytes_);
      done_(bytes_.size());
    }
  }

  void WritePooled(const FixtureTensor& tensor, TensorType type, double deviation) {
    const size_t unit = std::gcd(tensor.ne[0], kUnitMost);
    const auto key = std::tuple(type, unit, deviation);
    auto pool = pools_.find(key);
    if (pool == pools_.end()) {
      pool = pools_.try_emplace(key, type, unit, deviation, options_.seed, options_.threads).first;
    }
    Random random(options_.seed, tensor.name);
    InPieces(tensor, type, [&](uint64_t, uint64_t, std::span<std::byte> bytes) {
      pool->second.Fill(random, bytes);
    });
  }

  void WriteEmbedding(const FixtureTensor& tensor, TensorType type) {
    const uint64_t row_bytes = RowBytes(tensor, type);
    InPieces(tensor, type, [&](uint64_t first, uint64_t rows, std::span<std::byte> bytes) {
      ParallelFor(options_.threads, rows, [&](size_t i) {
        Random random(options_.seed, tensor.name + " " + std::to_string(first + i));
        std::vector<float> values(tensor.ne[0]);
        for (float& value : values) value = random.Normal();
        topics_.AddToEmbedding(first + i, values);
        for (float& value : values) value = static_cast<float>(double{value} * tensor.gain);
        EncodeRow(type, values, bytes.subspan(i * row_bytes, row_bytes));
      });
    });
  }

  // Where topics are planted, what layers add to the residual stays small beside the embedding,
  // which carries them: two additions a layer come to about one in all. What layers add has a part
  // that all rows have in common, and by it routers like some experts more: for even routing it is
  // next to nothing.
  double ResidualGain(const FixtureTensor& tensor) const {
    constexpr double kEven = 32;
    if (topics_.count() == 0 && !options_.even) return tensor.gain;
    const double of_all = tensor.gain / std::sqrt(2.0 * static_cast<double>(layers_));
    return options_.even ? of_all / kEven : of_all;
  }

  void WriteHead(const FixtureTensor& tensor, TensorType type) {
    const uint64_t row_bytes = RowBytes(tensor, type);
    const double deviation = tensor.gain / std::sqrt(static_cast<double>(tensor.ne[0]));
    InPieces(tensor, type, [&](uint64_t first, uint64_t rows, std::span<std::byte> bytes) {
      ParallelFor(options_.threads, rows, [&](size_t i) {
        Random random(options_.seed, tensor.name + " " + std::to_string(first + i));
        std::vector<float> values(tensor.ne[0]);
        for (float& value : values) value = static_cast<float>(double{random.Normal()} * deviation);
        topics_.AddToHead(first + i, tensor.gain, values);
        EncodeRow(type, values, bytes.subspan(i * row_bytes, row_bytes));
      });
    });
  }

  // Each value value(u) for a u drawn evenly from 0 to 1.
  template <class Value>
  void WriteDrawn(const FixtureTensor& tensor, TensorType type, const Value& value_of) {
    Random random(options_.seed, tensor.name);
    std::vector<float> values(tensor.ne[0]);
    InPieces(tensor, type, [&](uint64_t, uint64_t rows, std::span<std::byte> bytes) {
      for (uint64_t r = 0; r < rows; ++r) {
        for (float& value : values) {
          value = static_cast<float>(value_of(double{random.Uniform()}));
        }
        EncodeRow(type, values, bytes.subspan(r * bytes.size() / rows, bytes.size() / rows));
      }
    });
  }

  // Row i gives value i of the input, and nothing of what lies behind the rows.
  void WriteFirstHalf(const FixtureTensor& tensor, TensorType type) {
    std::vector<float> values(tensor.ne[0]);
    InPieces(tensor, type, [&](uint64_t first, uint64_t rows, std::span<std::byte> bytes) {
      for (uint64_t r = 0; r < rows; ++r) {
        std::ranges::fill(values, 0.0F);
        if (first + r < values.size()) values[first + r] = static_cast<float>(tensor.gain);
        EncodeRow(type, values, bytes.subspan(r * bytes.size() / rows, bytes.size() / rows));
      }
    });
  }

  void WriteRouter(const FixtureTensor& tensor, TensorType type) {
    Random random(options_.seed, tensor.name);
    const uint64_t width = tensor.ne[0];
    std::vector<float> values(width * tensor.ne[1]);
    const double deviation = tensor.gain / std::sqrt(static_cast<double>(width));
    for (float& value : values) value = static_cast<float>(double{random.Normal()} * deviation);
    topics_.AddToRouter(tensor.name, values);
    InPieces(tensor, type, [&](uint64_t first, uint64_t rows, std::span<std::byte> bytes) {
      for (uint64_t r = 0; r < rows; ++r) {
        EncodeRow(type, std::span(values).subspan((first + r) * width, width),
                  bytes.subspan(r * bytes.size() / rows, bytes.size() / rows));
      }
    });
  }

  model::GgufWriter& writer_;
  const FixtureOptions& options_;
  uint64_t layers_;
  Topics topics_;
  std::function<void(uint64_t)> done_;
  std::map<std::tuple<TensorType, size_t, double>, BlockPool> pools_;
  std::vector<std::byte> bytes_;
};

Topics TopicsOf(const std::vector<FixtureTensor>& tensors, const FixtureOptions& options,
                uint64_t vocabulary) {
  const auto has = [&](Fill fill) {
    return std::ranges::find(tensors, fill, &FixtureTensor::fill) != tensors.end();
  };
  if (options.persistence > 0 && (options.locality <= 0 || !has(Fill::kHead))) {
    throw Error(ErrorKind::kUsage,
                options.locality <= 0
                    ? "--persistence: there are no topics to stay with; give --locality too"
                    : "--persistence: this recipe has no tensor of fill head");
  }
  if (options.even && options.locality > 0) {
    throw Error(ErrorKind::kUsage, "--even and --locality: routing has one of them");
  }
  const auto router = std::ranges::find(tensors, Fill::kRouter, &FixtureTensor::fill);
  if (router == tensors.end()) {
    if (options.locality > 0) {
      throw Error(ErrorKind::kUsage, "--locality: this recipe has no router");
    }
    return {options.seed, 0, 0, 0, 0};
  }
  Topics topics(options.seed, router->ne[0], router->ne[1], router->picks, options.locality);
  if (options.persistence > 0) topics.SetStay(options.persistence, vocabulary);
  return topics;
}

uint64_t U64Of(const std::vector<std::pair<std::string, model::MetadataValue>>& keys,
               const std::string& key) {
  for (const auto& [name, value] : keys) {
    const auto* number = name == key ? std::get_if<uint64_t>(&value.data) : nullptr;
    if (number != nullptr) return *number;
  }
  return 0;
}

}  // namespace

void WriteFixture(const std::string& path, const FixtureRecipe& recipe, const model::QuantMix& mix,
                  const model::Metadata& tokenizer, const FixtureOptions& options,
                  const std::function<void(uint64_t, uint64_t)>& progress) {
  const std::vector<FixtureTensor> tensors = recipe.Tensors();
  auto keys = recipe.Keys(options.architecture);
  const model::MixModel shape{.layers = recipe.layers(),
                              .tied_head = std::ranges::find(tensors, "output.weight",
                                                             &FixtureTensor::name) == tensors.end(),
                              .experts = U64Of(keys, options.architecture + ".expert_count")};
  model::GgufWriter writer(path);
  writer.Add("general.architecture", model::StringValue(options.architecture));
  writer.Add("general.name", model::StringValue(recipe.model() + " fixture, " +
                                                std::to_string(recipe.layers()) + " layers"));
  writer.Add("general.file_type", model::U32Value(mix.file_type));
  writer.Add("general.quantization_version", model::U32Value(2));
  for (auto& [key, value] : keys) writer.Add(key, std::move(value));
  AddTokenizer(writer, tokenizer, recipe.vocabulary());
  std::vector<TensorType> types;
  for (const FixtureTensor& tensor : tensors) {
    types.push_back(TypeInMix(mix, shape, tensor.name, tensor.ne, TensorType::kF32));
    writer.AddTensor(tensor.name, types.back(), tensor.ne);
  }
  writer.BeginData();
  uint64_t done = 0;
  TensorWriter weights(writer, options, recipe.layers(),
                       TopicsOf(tensors, options, recipe.vocabulary()), [&](uint64_t bytes) {
                         done += bytes;
                         progress(done, writer.DataBytes());
                       });
  for (size_t i = 0; i < tensors.size(); ++i) weights.Write(tensors[i], types[i]);
  writer.Finish();
}

}  // namespace bloomery::apps

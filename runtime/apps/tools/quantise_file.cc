#include "runtime/apps/tools/quantise_file.h"

#include <algorithm>
#include <vector>

#include "runtime/apps/tools/parallel.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_writer.h"
#include "runtime/ops/row_codec.h"

namespace bloomery::apps {
namespace {

using model::TensorType;

// Source bytes of one piece: several rows for each thread, small beside any machine's memory.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr uint32_t kQuantisationVersion = 2;  // of the block layouts; readers expect it

std::string TypeName(TensorType type) { return std::string(model::Info(type).name); }

std::vector<TensorType> ChooseTypes(const TensorSource& source, const model::QuantMix& mix) {
  const model::Metadata& metadata = source.metadata();
  const std::string architecture(metadata.GetString("general.architecture"));
  const model::MixModel shape{
      .layers = metadata.GetU64(architecture + ".block_count"),
      .tied_head = std::ranges::find(source.tensors(), "output.weight", &SourceTensor::name) ==
                   source.tensors().end(),
      .experts = metadata.FindU64(architecture + ".expert_count").value_or(0)};
  std::vector<TensorType> types;
  for (const SourceTensor& tensor : source.tensors()) {
    const TensorType type = TypeInMix(mix, shape, tensor.name, tensor.ne, tensor.type);
    const auto refuse = [&](const std::string& problem) {
      throw Error(ErrorKind::kUnsupported,
                  source.path() + ": tensor '" + Printable(tensor.name) + "': " + problem);
    };
    if (type != tensor.type) {
      if (ops::RowCodecOf(static_cast<uint32_t>(tensor.type)).decode == nullptr) {
        refuse("this build does not decode " + TypeName(tensor.type));
      }
      if (ops::RowCodecOf(static_cast<uint32_t>(type)).encode == nullptr) {
        refuse("this build does not write " + TypeName(type));
      }
    }
    types.push_back(type);
  }
  return types;
}

class TensorConverter {
 public:
  TensorConverter(const TensorSource& source, model::GgufWriter& writer, int32_t threads)
      : source_(source), writer_(writer), threads_(threads) {}

  // Writes tensor i as `type`; `done` gets the source bytes of each piece.
  void Convert(size_t i, TensorType type, const std::function<void(uint64_t)>& done) {
    const SourceTensor& tensor = source_.tensors()[i];
    const uint64_t row_bytes = tensor.row_bytes();
    const uint64_t rows_piece = std::max<uint64_t>(1, kPieceBytes / row_bytes);
    for (uint64_t row = 0; row < tensor.rows(); row += rows_piece) {
      const uint64_t rows = std::min(rows_piece, tensor.rows() - row);
      in_.resize(rows * row_bytes);
      source_.ReadRows(i, row, in_);
      if (type == tensor.type) {
        writer_.WriteData(in_);
      } else {
        EncodeRows(tensor, type, row, rows);
        writer_.WriteData(out_);
      }
      done(in_.size());
    }
  }

 private:
  void EncodeRows(const SourceTensor& tensor, TensorType type, uint64_t first, uint64_t rows) {
    const model::TensorTypeInfo& info = model::Info(type);
    const size_t width = tensor.ne[0];
    const size_t in_bytes = tensor.row_bytes();
    const size_t out_bytes = width / info.block_values * info.block_bytes;
    const auto decode = ops::RowCodecOf(static_cast<uint32_t>(tensor.type)).decode;
    const auto encode = ops::RowCodecOf(static_cast<uint32_t>(type)).encode;
    out_.resize(rows * out_bytes);
    // Several rows a call: a row of a narrow model takes less time than handing it out.
    const size_t group = std::max<size_t>(1, (size_t{1} << 15) / width);
    ParallelFor(threads_, (rows + group - 1) / group, [&](size_t g) {
      std::vector<float> values(width);
      for (size_t r = g * group; r < std::min<size_t>((g + 1) * group, rows); ++r) {
        decode(in_.data() + r * in_bytes, values.data(), width);
        const size_t good = encode(values.data(), nullptr, out_.data() + r * out_bytes, width);
        if (good == width) continue;
        throw Error(ErrorKind::kBadModel,
                    source_.path() + ": tensor '" + Printable(tensor.name) + "', row " +
                        std::to_string(first + r) + ", value " + std::to_string(good) + ": " +
                        std::to_string(values[good]) + " cannot be written as " + TypeName(type));
      }
    });
  }

  const TensorSource& source_;
  model::GgufWriter& writer_;
  int32_t threads_;
  std::vector<std::byte> in_, out_;
};

}  // namespace

TypeCounts QuantiseFile(const TensorSource& source, const std::string& out_path,
                        const model::QuantMix& mix, int32_t threads,
                        const std::function<void(uint64_t, uint64_t)>& progress) {
  const std::vector<TensorType> types = ChooseTypes(source, mix);
  model::GgufWriter writer(out_path);
  writer.AddAll(source.metadata());
  writer.Add("general.file_type", model::U32Value(mix.file_type));
  writer.Add("general.quantization_version", model::U32Value(kQuantisationVersion));
  TypeCounts counts;
  for (size_t i = 0; i < types.size(); ++i) {
    const SourceTensor& tensor = source.tensors()[i];
    writer.AddTensor(tensor.name, types[i], tensor.ne);
    ++counts[types[i]];
  }
  writer.BeginData();
  uint64_t done = 0;
  uint64_t all = 0;
  for (const SourceTensor& tensor : source.tensors()) all += tensor.bytes();
  TensorConverter converter(source, writer, threads);
  for (size_t i = 0; i < types.size(); ++i) {
    converter.Convert(i, types[i], [&](uint64_t bytes) {
      done += bytes;
      progress(done, all);
    });
  }
  writer.Finish();
  return counts;
}

}  // namespace bloomery::apps

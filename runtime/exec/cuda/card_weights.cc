#include "runtime/exec/cuda/card_weights.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>

#include "kernels-common/elementwise/cuda/elementwise.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/exec/cuda/card_load.h"
#include "runtime/memory/placement.h"
#include "runtime/memory/plan.h"

namespace bloomery::exec {
namespace {

const kernels::FormatTraits& FormatOf(const model::ModelFile& model, const plugin::Weight& weight) {
  const kernels::FormatTraits* format = kernels::FindFormat(static_cast<int>(weight.type));
  if (format != nullptr) return *format;
  throw Error(ErrorKind::kUnsupported, "tensor '" + weight.name + "' of " + model.path() + " is " +
                                           std::string(model::Info(weight.type).name) +
                                           ", which this version has no kernels for");
}

CardLayout LayoutOf(const kernels::FormatTraits& format, const plugin::Weight& weight) {
  if (weight.role == BL_ROLE_TABLE) {
    return kernels::cuda::CanEmbed(format.ggml_type) ? CardLayout::kFileRows : CardLayout::kDecoded;
  }
  if (format.activation_group == 0) return CardLayout::kFileRows;
  return kernels::cuda::HasCardForm(format.ggml_type) ? CardLayout::kCardForm
                                                      : CardLayout::kDecoded;
}

uint64_t BytesAs(CardLayout layout, const kernels::FormatTraits& format,
                 const plugin::Weight& weight) {
  const auto times = [&](uint64_t a, uint64_t b) {
    return CheckedMul(a, b, ErrorKind::kNoMemory, "weight '" + weight.name + "' on the card");
  };
  const uint64_t matrices = times(weight.ne[2], weight.ne[3]);
  switch (layout) {
    case CardLayout::kCardForm:
      return times(kernels::cuda::CardBytes(format.ggml_type, weight.ne[1], weight.ne[0]),
                   matrices);
    case CardLayout::kDecoded:
      return times(times(weight.ne[0], weight.ne[1]), times(matrices, sizeof(uint16_t)));
    default:
      return weight.bytes;
  }
}

}  // namespace

CardWeightLayout::CardWeightLayout(const model::ModelFile& model,
                                   const plugin::Description& description)
    : places_(description.weights.size()) {
  using Key = std::tuple<size_t, uint64_t, uint64_t, CardLayout>;
  std::map<Key, CardPlace> seen;
  uint64_t room = 0;
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present) continue;
    const kernels::FormatTraits& format = FormatOf(model, weight);
    CardPlace place;
    place.layout = LayoutOf(format, weight);
    if (weight.bytes == 0) {  // a bank without a frame
      places_[i] = place;
      continue;
    }
    const auto [known, is_new] = seen.try_emplace(
        Key{weight.tensor, weight.offset, weight.bytes, place.layout}, CardPlace{});
    if (is_new) {
      place.bytes = BytesAs(place.layout, format, weight);
      place.at = bytes_;
      bytes_ = CheckedAdd(
          bytes_,
          CheckedAlignUp(place.bytes, memory::kCardAlignment, ErrorKind::kNoMemory, "weights"),
          ErrorKind::kNoMemory, "weights on the card");
      if (place.layout == CardLayout::kCardForm) {
        room = std::max(room, LargestBatch(format, weight, kLoadBatchBytes));
      }
      if (place.layout == CardLayout::kDecoded) {
        decoded_.push_back(weight.name + " (" + format.name + ") as F16");
      }
      known->second = place;
      order_.push_back(i);
    }
    places_[i] = known->second;
  }
  staging_bytes_ = room == 0 ? 0 : kLoadRooms * LoadRoomBytes(room);
  std::ranges::sort(order_, {}, [&](uint32_t i) {
    const plugin::Weight& weight = description.weights[i];
    const model::TensorInfo& tensor = model.tensors()[weight.tensor];
    return std::pair(tensor.file, tensor.offset + weight.offset);
  });
}

std::string CardLoadReport::Line(const std::string& card) const {
  std::array<char, 240> text{};
  const double work = read.seconds - memory - pinning - files - copies;
  std::snprintf(text.data(), text.size(),
                "%.2f s, %.1f GB/s (memory %.3f, pinning %.3f, waiting for copies %.3f, for files "
                "with the link idle %.3f, work %.3f; first to last copy %.3f, repacking after it "
                "%.3f)",
                read.seconds, static_cast<double>(read.bytes) / 1e9 / std::max(read.seconds, 1e-9),
                memory, pinning, copies, files, work, link, tail);
  return "weights: " + memory::FormatBytes(read.bytes) + " to " + card + " in " + text.data();
}

CardWeights::CardWeights(const model::ModelFile& model, const plugin::Description& description,
                         CardWeightLayout layout, const kernels::cuda::Launch& launch,
                         const std::function<void(uint64_t, uint64_t)>& progress)
    : description_(description), layout_(std::move(layout)) {
  report_ = LoadCardWeights(model, description_, layout_, &memory_, launch, progress);
}

int CardWeights::Type(uint32_t weight) const {
  return layout_.place(weight).layout == CardLayout::kDecoded
             ? static_cast<int>(model::TensorType::kF16)
             : static_cast<int>(description_.weights[weight].type);
}

const std::byte* CardWeights::Data(uint32_t weight) const {
  return memory_.data() + layout_.place(weight).at;
}

kernels::cuda::CardWeight CardWeights::Matrix(uint32_t weight) const {
  const plugin::Weight& described = description_.weights[weight];
  const CardPlace& place = layout_.place(weight);
  const uint64_t experts = described.ne[2] * described.ne[3];
  kernels::cuda::CardWeight matrix;
  matrix.format = kernels::FindFormat(Type(weight));
  matrix.data = Data(weight);
  matrix.n = described.ne[1];
  matrix.k = described.ne[0];
  if (place.layout != CardLayout::kCardForm) {
    matrix.row_bytes = kernels::RowBytes(*matrix.format, matrix.k);
  }
  if (experts > 1) matrix.expert_bytes = place.bytes / experts;
  return matrix;
}

}  // namespace bloomery::exec

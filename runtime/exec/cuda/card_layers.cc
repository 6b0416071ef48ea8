#include "runtime/exec/cuda/card_layers.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "kernels-common/layer/cuda/one_row_layers.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

constexpr size_t kSteps = 6;  // of a layer

std::optional<cuda::OneRowLayer> LayerAt(std::span<const CardStep> steps) {
  if (steps.size() < kSteps) return std::nullopt;
  const auto at = [&](size_t i) { return &steps[i].launch.arguments(); };
  const auto* qkv = std::get_if<cuda::RowsLinearArgs>(at(0));
  const auto* attention = std::get_if<HeadAttentionArgs>(at(1));
  const auto* output = std::get_if<cuda::RowsLinearArgs>(at(2));
  const auto* router = std::get_if<cuda::RowsLinearArgs>(at(3));
  const auto* gate_up = std::get_if<cuda::ExpertGateUpRowsArgs>(at(4));
  const auto* down = std::get_if<cuda::ExpertDownRowsArgs>(at(5));
  if (qkv == nullptr || attention == nullptr || output == nullptr || router == nullptr ||
      gate_up == nullptr || down == nullptr || gate_up->frame_of != nullptr) {
    return std::nullopt;
  }
  return cuda::OneRowLayer{
      *qkv, attention->attention, attention->inputs, *output, *router, *gate_up, *down};
}

// Whether something is read after the pass that the joined launch does not write.
bool Keeps(const cuda::OneRowLayer& layer, bool last, std::span<const std::byte* const> kept) {
  std::vector<const void*> made = {layer.attention.out, layer.output.matrices[0].y,
                                   layer.router.matrices[0].y, layer.gate_up.ids,
                                   layer.gate_up.weights};
  for (int i = 0; i < layer.qkv.count; ++i) made.push_back(layer.qkv.matrices[i].y);
  if (!last) made.push_back(layer.down.out);
  return std::ranges::any_of(made, [&](const void* each) {
    return std::ranges::find(kept, static_cast<const std::byte*>(each)) != kept.end();
  });
}

}  // namespace

void JoinLayers(const cuda::Launch& launch, std::span<const std::byte* const> kept,
                std::byte* state, std::vector<CardStep>* steps) {
  size_t first = 0;
  while (first < steps->size() && !LayerAt(std::span(*steps).subspan(first))) ++first;
  auto layers = std::make_shared<std::vector<cuda::OneRowLayer>>();
  for (size_t at = first; at < steps->size(); at += kSteps) {
    const std::optional<cuda::OneRowLayer> layer = LayerAt(std::span(*steps).subspan(at));
    if (!layer) break;
    layers->push_back(*layer);
  }
  for (size_t i = 0; i < layers->size(); ++i) {
    if (Keeps((*layers)[i], i + 1 == layers->size(), kept)) return;
  }
  if (!cuda::OneRowLayersFit(launch, *layers)) return;
  const auto begin = steps->begin() + static_cast<std::ptrdiff_t>(first);
  *begin = {"layers", -1, [layers, state](const cuda::Launch& on) {
              return cuda::OneRowLayers(on, *layers, state);
            }};
  steps->erase(begin + 1, begin + static_cast<std::ptrdiff_t>(layers->size() * kSteps));
}

}  // namespace bloomery::exec

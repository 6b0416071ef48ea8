#include "runtime/memory/weights.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/memory/plan.h"

namespace bloomery::memory {
namespace {

constexpr uint64_t kPage = File::kDirectAlignment;

// Pages of one file that hold tensors one after the other, and where they go in the region.
struct Extent {
  uint32_t file = 0;
  uint64_t begin = 0;  // in the file, a multiple of the page
  uint64_t end = 0;    // likewise, or the file's end
  uint64_t at = 0;     // in the region, a multiple of the page
};

struct Layout {
  std::vector<Extent> extents;
  std::vector<uint64_t> places;  // in the region, by position in the list of tensors
  uint64_t bytes = 0;
};

uint64_t PageUp(uint64_t bytes) {
  return CheckedAlignUp(bytes, kPage, ErrorKind::kBadModel, "bytes of all weights");
}

Layout LayOut(const model::ModelFile& model, std::span<const size_t> tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto tensor = [&](size_t i) -> const model::TensorInfo& {
    return model.tensors()[tensors[i]];
  };
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::pair(tensor(i).file, tensor(i).offset); });
  Layout layout;
  layout.places.resize(tensors.size());
  for (const size_t i : order) {
    const model::TensorInfo& info = tensor(i);
    const uint64_t begin = info.offset / kPage * kPage;
    const uint64_t end = std::min(PageUp(CheckedAdd(info.offset, info.bytes, ErrorKind::kBadModel,
                                                    "end of tensor '" + info.name + "'")),
                                  model.files()[info.file]->size());
    Extent* last = layout.extents.empty() ? nullptr : &layout.extents.back();
    if (last == nullptr || last->file != info.file || begin > last->end) {
      if (last != nullptr) {
        layout.bytes = CheckedAdd(layout.bytes, PageUp(last->end - last->begin),
                                  ErrorKind::kBadModel, "bytes of all weights");
      }
      layout.extents.push_back({info.file, begin, end, layout.bytes});
      last = &layout.extents.back();
    }
    last->end = std::max(last->end, end);
    layout.places[i] = last->at + (info.offset - last->begin);
  }
  if (!layout.extents.empty()) {
    const Extent& last = layout.extents.back();
    layout.bytes = CheckedAdd(layout.bytes, PageUp(last.end - last.begin), ErrorKind::kBadModel,
                              "bytes of all weights");
  }
  return layout;
}

std::string Percent(uint64_t part, uint64_t whole) {
  const double share =
      whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", share);
  return text.data();
}

}  // namespace

uint64_t WeightStore::Bytes(const model::ModelFile& model, std::span<const size_t> tensors) {
  return LayOut(model, tensors).bytes;
}

WeightStore::WeightStore(const model::ModelFile& model, std::span<const size_t> tensors,
                         WeightSource source,
                         const std::function<void(uint64_t, uint64_t)>& progress)
    : data_(model.tensors().size(), nullptr) {
  if (source == WeightSource::kMap) {
    for (const size_t index : tensors) {
      std::unique_ptr<Mapping> mapping = model.MapTensor(index);
      // Reading it instead would take memory that the plan has not counted.
      if (mapping == nullptr) {
        throw Error(ErrorKind::kNoInput, "tensor '" + model.tensors()[index].name + "' of " +
                                             model.path() +
                                             " cannot be mapped into memory; start with --no-mmap "
                                             "to read the weights instead");
      }
      data_[index] = mapping->bytes().data();
      mappings_.push_back(std::move(mapping));
    }
    return;
  }
  const Layout layout = LayOut(model, tensors);
  region_ = HostBuffer(layout.bytes, "weights");
  std::vector<ReadStretch> stretches;
  stretches.reserve(layout.extents.size());
  for (const Extent& extent : layout.extents) {
    stretches.push_back({.file = model.files()[extent.file].get(),
                         .offset = extent.begin,
                         .to = region_.bytes().subspan(extent.at, extent.end - extent.begin)});
  }
  report_ = ReadAll(stretches, progress);
  for (size_t i = 0; i < tensors.size(); ++i) {
    data_[tensors[i]] = region_.data() + layout.places[i];
  }
}

const std::byte* WeightStore::Find(size_t index) const { return data_[index]; }

std::string WeightStore::Line() const {
  if (region_.size() == 0) {
    return "weights: mapped from " + std::to_string(mappings_.size()) +
           " tensors' places in the file, read as they are touched";
  }
  std::array<char, 64> speed{};
  std::snprintf(speed.data(), speed.size(), "%.2f s, %.1f GB/s", report_.seconds,
                static_cast<double>(report_.bytes) / 1e9 / std::max(report_.seconds, 1e-9));
  std::string line = "weights: " + FormatBytes(report_.bytes) + " read in " + speed.data() + ", " +
                     Percent(report_.direct_bytes, report_.bytes) + " past the page cache";
  if (report_.direct_bytes < report_.bytes) line += ", the rest through it";
  const std::optional<uint64_t> huge = region_.HugeBytes();
  return line + "; " +
         (huge ? Percent(*huge, region_.size()) + " on huge pages"
               : "huge pages: the system does not tell");
}

}  // namespace bloomery::memory

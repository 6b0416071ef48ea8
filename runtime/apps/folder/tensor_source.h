// What bloomery quantize reads: metadata and tensors of a model in the form of a model file,
// whatever lies behind them. Reading may happen from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/inventory.h"
#include "runtime/model/metadata.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::apps {

struct SourceTensor {
  std::string name;
  model::TensorType type;
  std::vector<uint64_t> ne;  // 1 to 4 axes, the contiguous one first

  uint64_t rows() const {
    return std::accumulate(ne.begin() + 1, ne.end(), uint64_t{1}, std::multiplies());
  }
  uint64_t row_bytes() const {
    const model::TensorTypeInfo& info = model::Info(type);
    return ne[0] / info.block_values * info.block_bytes;
  }
  uint64_t bytes() const { return rows() * row_bytes(); }
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // As given, for messages.
  virtual const std::string& path() const = 0;
  virtual const model::Metadata& metadata() const = 0;
  // In the order in which they are written.
  virtual std::span<const SourceTensor> tensors() const = 0;
  // The bytes of whole rows of tensor i from row `first`. Throws as its reader does.
  virtual void ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const = 0;
};

// A model file as it is. `file` must outlive it.
class ModelFileSource final : public TensorSource {
 public:
  explicit ModelFileSource(const model::ModelFile& file);

  const std::string& path() const override { return file_.path(); }
  const model::Metadata& metadata() const override { return file_.metadata(); }
  std::span<const SourceTensor> tensors() const override { return tensors_; }
  void ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const override;

 private:
  const model::ModelFile& file_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace bloomery::apps

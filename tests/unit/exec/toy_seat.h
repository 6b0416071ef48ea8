// A seat without a plugin: a small model file made in memory, the description a plugin would have
// given of it, and a build function of the test's choice.
#pragma once

#include <bloomery/graph.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/cpu/cpu_seat.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/description.h"
#include "tests/support/memory_files.h"

namespace bloomery::test {

class ToySeat {
 public:
  static constexpr int32_t kWidth = 256;
  static constexpr int32_t kVocabulary = 24;

  using Build = std::function<void(sdk::Graph&)>;

  // Starts with weight `table`, F32 [256, 24], and no planes.
  ToySeat();

  // A weight of `type`; F32 values are value(i), other types are zero bytes.
  sdk::Weight Add(const std::string& name, std::vector<uint64_t> ne,
                  model::TensorType type = model::TensorType::kF32,
                  const std::function<float(size_t)>& value = Wave);
  // A bank over three such tensors.
  sdk::Bank AddBank(uint32_t experts, uint32_t used, uint64_t ff, model::TensorType gate,
                    model::TensorType up, model::TensorType down);
  sdk::Plane AddPlane(const std::string& name, uint64_t width, bl_dtype type = BL_F32);

  // Values of the F32 weight.
  const std::vector<float>& Values(sdk::Weight weight) const { return values_[weight.index]; }

  // The graph of `build` for `rows` rows, all of whose logits may be wanted. The operators it names
  // live until the next call.
  graph::Graph MakeGraph(int32_t rows, const Build& build);
  // The same, lowered.
  exec::LoweredGraph Lower(int32_t rows, const Build& build, std::vector<std::string> wanted);

  // The file of the weights so far.
  const model::ModelFile& Model() {
    MakeModel();
    return *model_;
  }

  std::unique_ptr<exec::CpuSeat> Load(const Build& build, exec::SeatOptions options = {});

  plugin::Description description;
  sdk::Weight table;
  Build draft;  // where set, what Load has as the draft's step
  // Where set, what Lower builds with, instead of the standard set and the description's operators.
  const graph::OperatorSet* operators = nullptr;

  static float Wave(size_t i);

 private:
  void MakeModel();

  struct Tensor {
    std::string name;
    std::vector<uint64_t> ne;
    model::TensorType type;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> values_;
  MemoryFileSystem files_;
  std::unique_ptr<model::ModelFile> model_;
  std::unique_ptr<exec::SeatOperators> operators_;
  graph::SeatInfo info_;
};

}  // namespace bloomery::test

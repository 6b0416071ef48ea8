// The steps by which the pool computes the host's picks of one bank: one dispatch where a pass has
// few rows (few_rows.h), else gate and up, quantising, down and the sums of picks. Whoever owns the
// arrays may share them between banks that come one after another. Made and called by the passes'
// thread; runs nothing itself, and allocates only when made.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/exec/split/few_rows.h"
#include "runtime/ops/backend.h"
#include "runtime/ops/moe.h"
#include "runtime/ops/step.h"

namespace bloomery::exec {

class BankSteps {
 public:
  // Passes of so many rows take the one dispatch.
  static constexpr int32_t kFewRows = 8;

  // Of a pass of rows_max rows; `picks` of them all.
  struct Arrays {
    int32_t* ints = nullptr;         // Ints(experts, picks)
    float* h = nullptr;              // picks * ff
    std::byte* codes = nullptr;      // h, quantised, where down has an integer format
    float* y = nullptr;              // picks * width
    std::byte* input = nullptr;      // rows as gate and up read them
    const float* weights = nullptr;  // picks
    int64_t* sums = nullptr;         // rows * width
  };
  static size_t Ints(size_t experts, size_t picks) { return 3 * (2 * experts + 1) + 2 * picks; }
  // What counts_ of a bank are made for.
  static size_t CountedExperts(size_t experts, size_t used) {
    return experts < kFewRows * used ? experts : kFewRows * used;
  }

  struct Args {
    const ops::Backend* backend = nullptr;
    ops::BankRows bank;
    uint32_t used = 0;
    int32_t rows_max = 0;
    Arrays arrays;
    const int32_t* live = nullptr;  // rows of the pass
    int32_t threads = 1;
    std::shared_ptr<FewRowsExperts::Counts> counts;
    const std::chrono::steady_clock::time_point* until = nullptr;  // nobody waits longer
  };
  explicit BankSteps(const Args& args);

  // A pass of `rows` rows, each with `used` ids; negative ones are nobody's here. Before its steps.
  void Begin(const int32_t* ids, int32_t rows);
  // In order, of the pass that began last.
  std::span<const std::unique_ptr<ops::Step>> Steps() const;
  const kernels::ExpertGroups& groups() const { return *groups_; }
  uint64_t expert_bytes() const { return expert_bytes_; }

  // Every step in another's hands.
  using Wrap = std::function<std::unique_ptr<ops::Step>(std::unique_ptr<ops::Step>)>;
  void WrapSteps(const Wrap& wrap);

 private:
  ops::Groups groups_ = std::make_shared<ops::PickGroups>();
  size_t experts_;
  uint32_t used_;
  int32_t threads_;
  uint64_t expert_bytes_;
  int32_t rows_ = 0;
  FewRowsExperts* few_rows_experts_ = nullptr;  // what few_rows_ runs
  std::vector<std::unique_ptr<ops::Step>> few_rows_;
  std::vector<std::unique_ptr<ops::Step>> many_rows_;
};

}  // namespace bloomery::exec

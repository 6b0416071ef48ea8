#include "kernels-common/linear/cpu/linear.h"

#include <algorithm>
#include <cassert>

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"

namespace bloomery::kernels::cpu {

std::size_t LinearScratchBytes(std::size_t k) {
  return std::max(kAmxScratchBytes, (k + kStepValues - 1) / kStepValues * kScratchStepBytes);
}

std::size_t Linear(Isa isa, const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::span<std::byte> scratch) {
  const FormatTraits& format = *args.weight.format;
  assert(scratch.size() >= LinearScratchBytes(args.weight.k));
  assert(args.weight.k % format.block_values == 0);
  if (args.rows == 0 || n_begin >= n_end) {
    return 0;
  }
  if (format.activation_group == 0) {
    BLOOMERY_KERNEL_512(isa, FloatLinear)(args, n_begin, n_end, scratch.data());
  } else {
    assert(args.quantised.group == format.activation_group && args.quantised.k == args.weight.k);
    BLOOMERY_KERNEL_AMX(isa, IntegerLinear)(args, n_begin, n_end, scratch.data());
  }
  return (n_end - n_begin) * RowBytes(format, args.weight.k);
}

bool WantsGatheredRows(Isa isa, const WeightRows& weight, std::size_t rows) {
#if defined(BLOOMERY_KERNELS_AVX2)
  return isa == Isa::kAmx && amx::TakesTiles(*weight.format, rows);
#else
  static_cast<void>(isa), static_cast<void>(weight), static_cast<void>(rows);
  return false;
#endif
}

}  // namespace bloomery::kernels::cpu

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/moe/cpu/impl.h"
#include "kernels-common/moe/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {

bool Softmax(const float* logits, std::size_t experts, float* p) {
  return SoftmaxRow<ScalarLanes>(logits, experts, p);
}

bool Sigmoid(const float* logits, std::size_t experts, float* p) {
  return SigmoidRow<ScalarLanes>(logits, experts, p);
}

bool PickSumRow(const PickSumArgs& args, std::size_t row, std::size_t column_begin,
                std::size_t column_end) {
  return PickSumColumns(args, row, column_begin, column_end);
}

}  // namespace bloomery::kernels::cpu::scalar

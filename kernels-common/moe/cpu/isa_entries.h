// The functions each instruction set brings for routed experts. Internal.
#pragma once

#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::cpu {

// p[experts] = softmax(logits); false where a logit is not finite (p is then zero).
using SoftmaxFunction = bool(const float* logits, std::size_t experts, float* p);
// The same with p = sigmoid(logits).
using SigmoidFunction = SoftmaxFunction;
// One row's columns of PickSum; false where a pick fails N7's limit.
using PickSumFunction = bool(const PickSumArgs& args, std::size_t row, std::size_t column_begin,
                             std::size_t column_end);

namespace scalar {
SoftmaxFunction Softmax;
SigmoidFunction Sigmoid;
PickSumFunction PickSumRow;
}  // namespace scalar
namespace avx2 {
SoftmaxFunction Softmax;
SigmoidFunction Sigmoid;
PickSumFunction PickSumRow;
}  // namespace avx2
namespace avx512vnni {
PickSumFunction PickSumRow;
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu

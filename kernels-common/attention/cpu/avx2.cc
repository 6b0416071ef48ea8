#include "kernels-common/attention/cpu/impl.h"
#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/cpu/lanes_avx2.h"

namespace bloomery::kernels::cpu {

// Everything but the two inner loops is the AVX2 code, as a type of its own.
struct Avx512Lanes : Avx2Lanes {};

template <>
struct WideKernels<Avx512Lanes> {
  static constexpr bool kHas = true;
  static constexpr auto* Dots8 = avx512vnni::Dots8;
  static constexpr auto* WeighPair = avx512vnni::WeighPair;
};

namespace avx2 {

void Attention(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::byte* scratch) {
  AttentionTask<Avx2Lanes>(args, row_begin, row_end, kv_head, scratch);
}

}  // namespace avx2

namespace avx512vnni {

void Attention(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::byte* scratch) {
  AttentionTask<Avx512Lanes>(args, row_begin, row_end, kv_head, scratch);
}

}  // namespace avx512vnni
}  // namespace bloomery::kernels::cpu

#include "kernels-common/attention/cpu/impl.h"
#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/cpu/lanes_avx2.h"

namespace bloomery::kernels::cpu::avx2 {

void Attention(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::byte* scratch) {
  AttentionTask<Avx2Lanes>(args, row_begin, row_end, kv_head, scratch);
}

}  // namespace bloomery::kernels::cpu::avx2

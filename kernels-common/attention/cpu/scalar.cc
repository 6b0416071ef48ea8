#include "kernels-common/attention/cpu/impl.h"
#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/cpu/lanes_scalar.h"

namespace bloomery::kernels::cpu::scalar {

void Attention(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::byte* scratch) {
  AttentionTask<ScalarLanes>(args, row_begin, row_end, kv_head, scratch);
}

}  // namespace bloomery::kernels::cpu::scalar

#include "kernels-common/attention/cpu/attention.h"

#include <cassert>

#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/scratch.h"
#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/quant/cpu/quant.h"

namespace bloomery::kernels::cpu {

std::size_t AttentionScratchBytes(const AttentionArgs& args) {
  return AttentionScratch(args).Floats() * sizeof(float);
}

void Attention(Isa isa, const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::span<std::byte> scratch) {
  assert(args.heads % args.kv_heads == 0 && kv_head < args.kv_heads);
  assert(scratch.size() >= AttentionScratchBytes(args));
  BLOOMERY_KERNEL_512(isa, Attention)(args, row_begin, row_end, kv_head, scratch.data());
}

void KvAppend(Isa isa, const KvAppendArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    if (args.index[row] < 0) {
      continue;
    }
    const KvView& view =
        args.views[args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row])];
    const auto position = static_cast<std::size_t>(args.index[row]);
    assert(position < view.capacity);
    EncodeKvRow(isa, view.type, args.x + row * args.x_stride, view.width, view.Row(position));
  }
}

}  // namespace bloomery::kernels::cpu

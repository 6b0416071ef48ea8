// Rope of rope.h on the card, with the bits of reference::Rope.
#pragma once

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/pass_rows.h"
#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::cuda {

// `args` with device pointers; its positions are those of `rows` where null. Live rows only.
cudaError_t Rope(const Launch& launch, const PassRowsView& rows, const RopeArgs& args);

}  // namespace bloomery::kernels::cuda

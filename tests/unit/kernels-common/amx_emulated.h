// The AMX kernels of Linear over tile registers in plain code (amx_impl.h with another Tiles).
#pragma once

#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::testing {

// The kernel of a format over emulated tiles; null where it has none. Its code needs AVX-512 VNNI.
cpu::LinearFunction* EmulatedTileKernel(const FormatTraits& format);

}  // namespace bloomery::kernels::testing

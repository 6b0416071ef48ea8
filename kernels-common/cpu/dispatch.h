// How an entry that takes an Isa finds its kernel. Each topic declares the same functions in the
// namespaces scalar and avx2 (<topic>/cpu/isa_entries.h); avx2 ones exist on x86-64 only. Internal.
#pragma once

#include "kernels-common/cpu/isa.h"

#if defined(BLOOMERY_KERNELS_AVX2)
#define BLOOMERY_KERNEL(isa, function) \
  ((isa) == ::bloomery::kernels::Isa::kAvx2 ? avx2::function : scalar::function)
#else
#define BLOOMERY_KERNEL(isa, function) (static_cast<void>(isa), scalar::function)
#endif

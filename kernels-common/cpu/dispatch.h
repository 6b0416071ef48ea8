// How an entry that takes an Isa finds its kernel. Each topic declares the same functions in the
// namespaces scalar and avx2 (<topic>/cpu/isa_entries.h); avx2 ones exist on x86-64 only. What has
// kernels in the namespace avx512vnni too is found by BLOOMERY_KERNEL_512, and in amx as well by
// BLOOMERY_KERNEL_AMX. Internal.
#pragma once

#include "kernels-common/cpu/isa.h"

#if defined(BLOOMERY_KERNELS_AVX2)
#define BLOOMERY_KERNEL(isa, function) \
  ((isa) == ::bloomery::kernels::Isa::kScalar ? scalar::function : avx2::function)
#define BLOOMERY_KERNEL_512(isa, function)                               \
  ((isa) >= ::bloomery::kernels::Isa::kAvx512Vnni ? avx512vnni::function \
                                                  : BLOOMERY_KERNEL(isa, function))
#define BLOOMERY_KERNEL_AMX(isa, function) \
  ((isa) == ::bloomery::kernels::Isa::kAmx ? amx::function : BLOOMERY_KERNEL_512(isa, function))
#else
#define BLOOMERY_KERNEL(isa, function) (static_cast<void>(isa), scalar::function)
#define BLOOMERY_KERNEL_512(isa, function) BLOOMERY_KERNEL(isa, function)
#define BLOOMERY_KERNEL_AMX(isa, function) BLOOMERY_KERNEL(isa, function)
#endif

// What one thread of this machine can do at most, measured once a run before the first benchmark
// that asks, and the counters that hold a benchmark against it. Loads on the machine during either
// measurement show: compare within one run.
#pragma once

#include <benchmark/benchmark.h>

#include "kernels-common/cpu/isa.h"

namespace bloomery::kernels {

// Bytes a second of plain loads over 512 MB.
double ReadBound();

// Multiply-adds of f32, or of 8-bit integers with the best instruction of an instruction set.
enum class Arithmetic { kFloat, kBytes };

// Operations a second, two a multiply-add; f32 by fma of 8 lanes, of 16 with
// AVX-512. 0 where it is not known.
double ArithmeticBound(Arithmetic arithmetic, Isa isa);

// Counters of a run that moved `bytes` and did `operations` in all: B/s and op/s, and their shares
// of the bounds, share_of_read_bound and share_of_arith_bound. 0 operations: none are counted.
void SetShares(benchmark::State& state, double bytes, double operations, Arithmetic arithmetic,
               Isa isa);

}  // namespace bloomery::kernels

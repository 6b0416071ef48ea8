// Which instruction set a CPU kernel runs with. Every CPU entry takes an Isa, so that a test or a
// user can force one; the bits of every result are the same for all of them (docs/design.md, the
// numeric rule). A build for another machine than x86-64 has kScalar only.
#pragma once

#include <span>

namespace bloomery::kernels {

// kAvx512Vnni: AVX-512 F, BW, DQ, VL and VNNI. Topics without kernels for one use the next lower.
enum class Isa { kScalar, kAvx2, kAvx512Vnni };

// The best one this machine and this build have.
Isa DetectIsa();

// All that this machine and this build have, slowest first; never empty.
std::span<const Isa> AvailableIsas();

// "scalar", "avx2", "avx512vnni".
const char* IsaName(Isa isa);

}  // namespace bloomery::kernels

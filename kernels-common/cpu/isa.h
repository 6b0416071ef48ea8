// Which instruction set a CPU kernel runs with. Every CPU entry takes an Isa, so that a test or a
// user can force one; the bits of every result are the same for all of them (docs/design.md, the
// numeric rule). A build for another machine than x86-64 has kScalar only.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace bloomery::kernels {

// kAvx512Vnni: AVX-512 F, BW, DQ, VL and VNNI. Topics without kernels for one use the next lower.
enum class Isa { kScalar, kAvx2, kAvx512Vnni };

// Their names, by value: the one list that a user's choice is compared with.
inline constexpr std::array<std::string_view, 3> kIsaNames = {"scalar", "avx2", "avx512vnni"};

// The best one this machine and this build have.
Isa DetectIsa();

// All that this machine and this build have, slowest first; never empty.
std::span<const Isa> AvailableIsas();

// Its entry of kIsaNames.
const char* IsaName(Isa isa);

}  // namespace bloomery::kernels

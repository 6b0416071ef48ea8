// Which instruction set a CPU kernel runs with. Every CPU entry takes an Isa, so that a test or a
// user can force one; the bits of every result are the same for all of them (docs/design.md, the
// numeric rule). A build for another machine than x86-64 has kScalar only.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace bloomery::kernels {

// kAvx512Vnni: AVX-512 F, BW, DQ, VL and VNNI. kAmx: these and AMX with int8. Topics without
// kernels for one use the next lower.
enum class Isa { kScalar, kAvx2, kAvx512Vnni, kAmx };

// Their names, by value: the one list that a user's choice is compared with.
inline constexpr std::array<std::string_view, 4> kIsaNames = {"scalar", "avx2", "avx512vnni",
                                                              "amx"};

// The best one this machine and this build have.
Isa DetectIsa();

// All that this machine and this build have, slowest first; never empty. Where the CPU has AMX, the
// first call of this or of the two beside it asks the kernel for its state, once for the process.
std::span<const Isa> AvailableIsas();

// Why kAmx is missing although the CPU has it; empty where the CPU lacks it or nothing is missing.
std::string_view WhyNoAmx();

// Its entry of kIsaNames.
const char* IsaName(Isa isa);

}  // namespace bloomery::kernels

// Every one of the 2^32 floats through exp and silu: scalar bits = lane bits, the largest error in
// ulp against long double, and one hash a function, which must be the committed one on every
// machine and (later) every card. Minutes of all cores; exits 1 on any difference.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "tests/unit/kernels-common/support.h"
#if defined(__AVX2__)
#include "kernels-common/cpu/lanes_avx2.h"
#endif
#include "kernels-common/exact_math/lanes.h"

namespace bloomery::kernels {
namespace {

#if defined(__AVX2__)
using Lanes = cpu::Avx2Lanes;
#else
using Lanes = cpu::ScalarLanes;
#endif

constexpr std::size_t kChunk = 1U << 16U;
constexpr std::size_t kParts = 256;  // hashed apart, then together in order
constexpr std::uint64_t kExpHash = 0x0717DD66BCB13177ULL;
constexpr std::uint64_t kSiluHash = 0x16CDC6321AF03046ULL;

struct Part {
  std::uint64_t exp_hash = 0xCBF29CE484222325ULL;
  std::uint64_t silu_hash = 0xCBF29CE484222325ULL;
  std::uint64_t differences = 0;
  double worst_ulp = 0.0;
};

struct Buffers {
  std::vector<float> x = std::vector<float>(kChunk);
  std::vector<float> exp = std::vector<float>(kChunk);
  std::vector<float> silu = std::vector<float>(kChunk);
  std::vector<float> lanes = std::vector<float>(kChunk);
  std::vector<float> ones = std::vector<float>(kChunk, 1.0F);
};

// FNV-1a by words of 32 bits; every NaN counts as one.
std::uint64_t HashWords(std::span<const float> values, std::uint64_t hash) {
  for (const float value : values) {
    const std::uint32_t bits = value != value ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
    hash = (hash ^ bits) * 0x100000001B3ULL;
  }
  return hash;
}

double Ulps(float made, long double exact) {
  const float rounded = static_cast<float>(exact);
  const long double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(made) - exact) / ulp);
}

// The floats whose bits are [first, first + kChunk).
void RunChunk(std::uint32_t first, Buffers* buffers, Part* part) {
  auto& [x, exp, silu, lanes, ones] = *buffers;
  for (std::size_t i = 0; i < kChunk; ++i) {
    x[i] = std::bit_cast<float>(first + static_cast<std::uint32_t>(i));
    exp[i] = ExactExp(x[i]);
    silu[i] = ExactSilu(x[i]);
    if (x[i] >= -87.0F && x[i] <= 88.0F) {
      part->worst_ulp =
          std::fmax(part->worst_ulp, Ulps(exp[i], std::exp(static_cast<long double>(x[i]))));
    }
  }
  for (std::size_t i = 0; i < kChunk; i += 8) {
    Lanes::Store(lanes.data() + i, ExpLanes<Lanes>(Lanes::Load(x.data() + i)));
  }
  part->differences += testing::FirstDifference(lanes, exp) != kChunk ? 1 : 0;
  cpu::SwiGlu(DetectIsa(), x.data(), ones.data(), lanes.data(), kChunk);
  part->differences += testing::FirstDifference(lanes, silu) != kChunk ? 1 : 0;
  part->exp_hash = HashWords(exp, part->exp_hash);
  part->silu_hash = HashWords(silu, part->silu_hash);
}

void RunParts(std::atomic<std::size_t>* next, std::vector<Part>* parts) {
  Buffers buffers;
  constexpr std::uint64_t kPart = (1ULL << 32U) / kParts;
  for (std::size_t i = next->fetch_add(1); i < kParts; i = next->fetch_add(1)) {
    for (std::uint64_t at = i * kPart; at < (i + 1) * kPart; at += kChunk) {
      RunChunk(static_cast<std::uint32_t>(at), &buffers, &(*parts)[i]);
    }
  }
}

int Main() {
  std::vector<Part> parts(kParts);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(RunParts, &next, &parts);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Part all;
  for (const Part& part : parts) {
    all.exp_hash = (all.exp_hash ^ part.exp_hash) * 0x100000001B3ULL;
    all.silu_hash = (all.silu_hash ^ part.silu_hash) * 0x100000001B3ULL;
    all.differences += part.differences;
    all.worst_ulp = std::fmax(all.worst_ulp, part.worst_ulp);
  }
  std::printf("exp  hash %016llx, largest error %.4f ulp on [-87, 88]\n",
              static_cast<unsigned long long>(all.exp_hash), all.worst_ulp);
  std::printf("silu hash %016llx\n", static_cast<unsigned long long>(all.silu_hash));
  std::printf("chunks where scalar and lanes differ: %llu\n",
              static_cast<unsigned long long>(all.differences));
  const bool same = all.exp_hash == kExpHash && all.silu_hash == kSiluHash;
  return all.differences == 0 && all.worst_ulp < 1.0 && same ? 0 : 1;
}

}  // namespace
}  // namespace bloomery::kernels

int main() { return bloomery::kernels::Main(); }

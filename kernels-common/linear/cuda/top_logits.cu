// First launch: the vocabulary is cut into at most 1024 stretches; a warp finds the largest entry
// of one. Second: the 64th largest of these heads bounds the 64th largest entry from below, and
// only the 64 stretches with heads above the bound can hold entries above it. Their entries above
// the bound, usually little more than 64, are sorted.
//
// An entry is a key of 64 bits: the logit's bits in ascending order above the complement of its id,
// so that keys are distinct and the larger key comes first. -0 counts as +0.
#include "kernels-common/linear/cuda/top_logits.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"

namespace bloomery::kernels::cuda {
namespace {

using Key = unsigned long long;

constexpr unsigned kAll = 0xFFFFFFFFU;
constexpr int kHeads = 1024;
constexpr int kHeadWarps = 8;
constexpr int kSortThreads = 1024;
static_assert(kHeads == kSortThreads);

// Entries of a stretch: at most kHeads stretches, of at least 4.
__host__ __device__ constexpr int StretchOf(int vocabulary) {
  const int even = (vocabulary + kHeads - 1) / kHeads;
  return even < 4 ? 4 : even;
}
// Entries that may lie above the bound, to a power of two.
constexpr int kEntriesMax = kTopLogits * StretchOf(kTopLogitsVocabularyMax);
static_assert((kEntriesMax & (kEntriesMax - 1)) == 0);

__device__ __forceinline__ Key KeyOf(float logit, int id) {
  const unsigned bits = __float_as_uint(logit + 0.0F);
  const unsigned ordered = bits ^ ((bits >> 31) != 0 ? kAll : 0x80000000U);
  return (static_cast<Key>(ordered) << 32) | (kAll - static_cast<unsigned>(id));
}
__device__ __forceinline__ int IdOf(Key key) {
  return static_cast<int>(kAll - static_cast<unsigned>(key));
}

__global__ void __launch_bounds__(32 * kHeadWarps) HeadsKernel(const TopLogitsArgs args) {
  AllowNext();
  WaitForInputs();
  const int row = static_cast<int>(blockIdx.y);
  if (args.live != nullptr && row >= *args.live) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int stretch = StretchOf(args.vocabulary);
  const int head = static_cast<int>(blockIdx.x) * kHeadWarps + static_cast<int>(threadIdx.x / 32);
  const float* logits = args.logits + static_cast<std::size_t>(row) * args.logits_stride;
  const int end = min(args.vocabulary, (head + 1) * stretch);
  Key most = 0;
  bool nan = false;
  for (int id = head * stretch + lane; id < end; id += 32) {
    const float logit = logits[id];
    nan = nan || logit != logit;
    const Key key = KeyOf(logit, id);
    most = key > most ? key : most;
  }
  for (int step = 16; step > 0; step /= 2) {
    const Key other = __shfl_xor_sync(kAll, most, step);
    most = other > most ? other : most;
  }
  if (lane == 0) static_cast<Key*>(args.scratch)[row * kHeads + head] = most;
  if (__any_sync(kAll, nan) && lane == 0) atomicMin(args.failed_row, row);
}

// Sorts the keys of the block's first `size` threads (a power of two), largest first; `exchange`
// has a place for each of two turns.
__device__ __forceinline__ Key SortThreads(Key key, int size, Key* exchange) {
  const int me = static_cast<int>(threadIdx.x);
  int turn = 0;
  for (int length = 2; length <= size; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      Key other;
      if (step >= 32) {
        Key* keys = exchange + turn * kSortThreads;
        keys[me] = key;
        __syncthreads();
        other = keys[me ^ step];
        turn ^= 1;
      } else {
        other = __shfl_xor_sync(kAll, key, step);
      }
      const bool larger = ((me & step) == 0) == ((me & length) == 0 || length == size);
      key = larger == (other > key) ? other : key;
    }
  }
  return key;
}

// The same over shared memory, any power of two; ends with a barrier.
__device__ __forceinline__ void SortShared(Key* keys, int size) {
  for (int length = 2; length <= size; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kSortThreads) {
        const int low = 2 * i - (i & (step - 1));
        const Key a = keys[low];
        const Key b = keys[low + step];
        if (((low & length) == 0 || length == size) == (b > a)) {
          keys[low] = b;
          keys[low + step] = a;
        }
      }
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kSortThreads, 1) TopKernel(const TopLogitsArgs args) {
  extern __shared__ __align__(16) Key entries[];
  __shared__ Key exchange[2 * kSortThreads];
  __shared__ int stretches[kTopLogits];
  __shared__ Key bound;
  __shared__ int count;
  AllowNext();
  WaitForInputs();
  const int row = static_cast<int>(blockIdx.x);
  if (args.live != nullptr && row >= *args.live) return;
  const int me = static_cast<int>(threadIdx.x);
  const int stretch = StretchOf(args.vocabulary);
  const int heads = (args.vocabulary + stretch - 1) / stretch;
  const float* logits = args.logits + static_cast<std::size_t>(row) * args.logits_stride;
  Key key = me < heads ? static_cast<const Key*>(args.scratch)[row * kHeads + me] : 0;
  key = SortThreads(key, kSortThreads, exchange);
  if (me < kTopLogits) stretches[me] = IdOf(key) / stretch;
  if (me == kTopLogits - 1) bound = key;  // 0 where there are fewer heads
  if (me == 0) count = 0;
  __syncthreads();
  const int candidates = min(heads, kTopLogits) * stretch;
  for (int i = me; i < candidates; i += kSortThreads) {
    const int id = stretches[i / stretch] * stretch + i % stretch;
    if (id >= args.vocabulary) continue;
    const Key entry = KeyOf(logits[id], id);
    if (entry >= bound) entries[atomicAdd(&count, 1)] = entry;
  }
  __syncthreads();
  int size = kTopLogits;
  while (size < count) size *= 2;
  if (size <= kSortThreads) {
    key = SortThreads(me < count ? entries[me] : 0, size, exchange);
  } else {
    for (int i = count + me; i < size; i += kSortThreads) entries[i] = 0;
    SortShared(entries, size);
    key = me < kTopLogits ? entries[me] : 0;
  }
  if (me < kTopLogits) {
    const int place = row * kTopLogits + me;
    args.ids[place] = IdOf(key);
    args.values[place] = logits[IdOf(key)];
  }
}

}  // namespace

std::size_t TopLogitsScratchBytes(std::int32_t rows) {
  return static_cast<std::size_t>(rows) * kHeads * sizeof(Key);
}

cudaError_t PrepareTopLogits() { return AllowShared(TopKernel, kEntriesMax * sizeof(Key)); }

cudaError_t TopLogits(const Launch& launch, const TopLogitsArgs& args) {
  if (args.vocabulary < kTopLogits || args.vocabulary > kTopLogitsVocabularyMax || args.rows < 1) {
    return cudaErrorInvalidValue;
  }
  const int stretch = StretchOf(args.vocabulary);
  const int heads = (args.vocabulary + stretch - 1) / stretch;
  const auto blocks = static_cast<unsigned>((heads + kHeadWarps - 1) / kHeadWarps);
  const auto rows = static_cast<unsigned>(args.rows);
  const cudaError_t status =
      Start(launch, dim3(blocks, rows), dim3(32 * kHeadWarps), 0, HeadsKernel, args);
  if (status != cudaSuccess) return status;
  int entries = kTopLogits;
  while (entries < kTopLogits * stretch) entries *= 2;
  return Start(launch, dim3(rows), dim3(kSortThreads), entries * sizeof(Key), TopKernel, args);
}

}  // namespace bloomery::kernels::cuda

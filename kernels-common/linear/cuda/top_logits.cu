// First launch: the vocabulary is cut into at most 1024 stretches; a warp finds the largest entry,
// the head, of one. Second: a bound that 64 heads reach is searched by halving. At least 64
// entries reach it then, and only the stretches of those heads have any; theirs, usually little
// more than 64, are ranked by comparing each with each.
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
constexpr std::size_t kOwnShared = 8 * 1024;  // at most, of TopKernel
constexpr int kSortThreads = 1024;
static_assert(kHeads == kSortThreads);

// Entries of a stretch: at most kHeads stretches, of at least 4.
__host__ __device__ constexpr int StretchOf(int vocabulary) {
  const int even = (vocabulary + kHeads - 1) / kHeads;
  return even < 4 ? 4 : even;
}
// Heads that reach the bound, and entries of a stretch that a lane looks at.
constexpr int kChosen = kTopLogits;
constexpr int kLaneEntries = StretchOf(kTopLogitsVocabularyMax) / 32;
// Keys of all entries that may reach the bound, to a power of two.
__host__ __device__ constexpr int EntriesOf(int vocabulary) {
  int entries = kTopLogits;
  while (entries < kChosen * StretchOf(vocabulary)) entries *= 2;
  return entries;
}

__device__ __forceinline__ Key KeyOf(float logit, int id) {
  const unsigned bits = __float_as_uint(logit + 0.0F);
  const unsigned ordered = bits ^ ((bits >> 31) != 0 ? kAll : 0x80000000U);
  return (static_cast<Key>(ordered) << 32) | (kAll - static_cast<unsigned>(id));
}
__device__ __forceinline__ int IdOf(Key key) {
  return static_cast<int>(kAll - static_cast<unsigned>(key));
}

// A lane's entries of a stretch: keys of ids first + lane + 32*i below `end`, 0 for none.
__device__ __forceinline__ void LoadKeys(const float* logits, int first, int end,
                                         Key (&keys)[kLaneEntries], bool& nan) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float logit[kLaneEntries];
#pragma unroll
  for (int i = 0; i < kLaneEntries; ++i) {
    const int id = first + lane + 32 * i;
    logit[i] = id < end ? logits[id] : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < kLaneEntries; ++i) {
    const int id = first + lane + 32 * i;
    nan = nan || logit[i] != logit[i];
    keys[i] = id < end ? KeyOf(logit[i], id) : 0;
  }
}

__global__ void __launch_bounds__(32 * kHeadWarps) HeadsKernel(const TopLogitsArgs args) {
  AllowNext();
  WaitForInputs();
  const int row = static_cast<int>(blockIdx.y);
  if (args.live != nullptr && row >= *args.live) return;
  const int stretch = StretchOf(args.vocabulary);
  const int head = static_cast<int>(blockIdx.x) * kHeadWarps + static_cast<int>(threadIdx.x / 32);
  const float* logits = args.logits + static_cast<std::size_t>(row) * args.logits_stride;
  Key keys[kLaneEntries];
  bool nan = false;
  LoadKeys(logits, head * stretch, min(args.vocabulary, (head + 1) * stretch), keys, nan);
  Key most = 0;
#pragma unroll
  for (int i = 0; i < kLaneEntries; ++i) most = keys[i] > most ? keys[i] : most;
  const auto value = static_cast<unsigned>(most >> 32);
  const unsigned largest = __reduce_max_sync(kAll, value);
  const unsigned id = __reduce_max_sync(kAll, value == largest ? static_cast<unsigned>(most) : 0U);
  if (threadIdx.x % 32 == 0) {
    static_cast<Key*>(args.scratch)[row * kHeads + head] = static_cast<Key>(largest) << 32 | id;
  }
  if (__any_sync(kAll, nan) && threadIdx.x % 32 == 0) atomicMin(args.failed_row, row);
}

// The largest bound found that at least kTopLogits of the block's keys (one a thread) reach: at
// most kChosen reach it too. 0 where there are fewer keys. The same in all threads.
__device__ __forceinline__ Key BoundOf(Key key, int keys) {
  Key low = 0;
  Key high = ~Key{0};
  while (keys >= kTopLogits && high - low > 1) {
    const Key middle = low + (high - low) / 2;
    const int reached = __syncthreads_count(key >= middle);
    if (reached >= kTopLogits) {
      low = middle;
      if (reached <= kChosen) break;
    } else {
      high = middle;
    }
  }
  return low;
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

// Places of up to kSortThreads keys by descending order, through `ranks`, which is zero: the
// threads of a warp compare keys of their own with one and the same.
__device__ __forceinline__ void RankKeys(const Key* keys, int count, int* ranks) {
  const int me = static_cast<int>(threadIdx.x);
  int size = kTopLogits;
  while (size < count) size *= 2;
  const int mine = me % size;
  const Key key = mine < count ? keys[mine] : 0;
  int larger = 0;
  for (int i = me / size; i < count; i += kSortThreads / size) larger += keys[i] > key ? 1 : 0;
  if (mine < count && larger != 0) atomicAdd(ranks + mine, larger);
}

// kShared: entries lie in shared memory; else, where that has no room for them, behind the heads in
// the scratch.
template <bool kShared>
__global__ void __launch_bounds__(kSortThreads, 1) TopKernel(const TopLogitsArgs args) {
  extern __shared__ __align__(16) Key shared_entries[];
  Key* const entries = kShared ? shared_entries
                               : static_cast<Key*>(args.scratch) + gridDim.x * kHeads +
                                     blockIdx.x * EntriesOf(args.vocabulary);
  __shared__ int ranks[kSortThreads];
  __shared__ int stretches[kChosen];
  __shared__ int chosen;
  __shared__ int count;
  AllowNext();
  WaitForInputs();
  const int row = static_cast<int>(blockIdx.x);
  if (args.live != nullptr && row >= *args.live) return;
  const int me = static_cast<int>(threadIdx.x);
  const int stretch = StretchOf(args.vocabulary);
  const int heads = (args.vocabulary + stretch - 1) / stretch;
  const float* logits = args.logits + static_cast<std::size_t>(row) * args.logits_stride;
  const Key head = me < heads ? static_cast<const Key*>(args.scratch)[row * kHeads + me] : 0;
  if (me == 0) chosen = count = 0;
  ranks[me] = 0;
  const Key bound = BoundOf(head, heads);
  __syncthreads();
  if (me < heads && head >= bound) stretches[atomicAdd(&chosen, 1)] = me;
  __syncthreads();
  for (int i = me / 32; i < chosen; i += kSortThreads / 32) {
    Key keys[kLaneEntries];
    bool nan = false;
    const int first = stretches[i] * stretch;
    LoadKeys(logits, first, min(args.vocabulary, first + stretch), keys, nan);
#pragma unroll
    for (int j = 0; j < kLaneEntries; ++j) {
      if (keys[j] != 0 && keys[j] >= bound) entries[atomicAdd(&count, 1)] = keys[j];
    }
  }
  __syncthreads();
  int place = me;
  if (count <= kSortThreads) {
    RankKeys(entries, count, ranks);
    __syncthreads();
    place = me < count ? ranks[me] : kTopLogits;
  } else {
    int size = kSortThreads;
    while (size < count) size *= 2;
    for (int i = count + me; i < size; i += kSortThreads) entries[i] = 0;
    SortShared(entries, size);
  }
  if (place < kTopLogits) {
    const int id = IdOf(entries[me]);
    args.ids[row * kTopLogits + place] = id;
    args.values[row * kTopLogits + place] = logits[id];
  }
}

}  // namespace

std::size_t TopLogitsScratchBytes(std::int32_t rows) {
  constexpr std::size_t kKeys = kHeads + EntriesOf(kTopLogitsVocabularyMax);
  return static_cast<std::size_t>(rows) * kKeys * sizeof(Key);
}

cudaError_t PrepareTopLogits() {
  cudaError_t status = PreferShared(HeadsKernel);
  if (status == cudaSuccess) status = PreferShared(TopKernel<false>);
  if (status != cudaSuccess) return status;
  return AllowShared(TopKernel<true>, EntriesOf(kTopLogitsVocabularyMax) * sizeof(Key));
}

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
  const std::size_t bytes = EntriesOf(args.vocabulary) * sizeof(Key);
  if (bytes > SharedLimit(launch, bytes, kOwnShared)) {
    return Start(launch, dim3(rows), dim3(kSortThreads), 0, TopKernel<false>, args);
  }
  return Start(launch, dim3(rows), dim3(kSortThreads), bytes, TopKernel<true>, args);
}

}  // namespace bloomery::kernels::cuda

// The kernel of prompt_attention.h. A block owns one kv head, kWarps * kGroups * 16 packed queries
// (row-major over the pass's rows, then the kv head's query heads) and up to kValueDim value dims.
// For each slot among its rows it walks the slot's keys in tiles of 64: S = Q K^T on tensor cores,
// a running maximum and sum in f32, O += P V. Keys are at absolute places of their tiles and a row
// takes nothing from another, so its bits depend on its own keys only.
//
// f32 planes: each operand is the sum of two halves, hi and lo, and a product is hi*hi + hi*lo +
// lo*hi. f16 planes are copied behind the computation (two buffers); others are converted on their
// way into one buffer, q8_0 where its rows allow it from bytes copied behind the computation.
//
// Bounded shapes know windows, rings and sinks: a block's walk begins with the tile of the first
// key that any of its rows sees, values before that key are zeros, and a sink joins sum and O at
// the end.
#pragma once

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/attention/cuda/heads.cuh"
#include "kernels-common/attention/cuda/mma.cuh"
#include "kernels-common/cuda/async_copy.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kMostTileRows = 128;

struct PromptPlan {
  CardAttention attention;
  std::int32_t ratio = 1;         // query heads a kv head
  std::int32_t tile_rows = 1;     // rows of the pass a block takes
  std::int32_t value_chunks = 1;  // blocks that share a head's value dims
  float exponent = 1.0F;          // scale * log2(e)
  bool staged = false;            // q8_0: heads' parts of rows are whole multiples of 8 bytes
};

template <KvType kPlane, int kKeys, int kValues, int kWarpCount, bool kIsBounded = false,
          int kGroupsAWarp = 1>
struct PromptShape {
  static constexpr KvType kType = kPlane;
  static constexpr bool kBounded = kIsBounded;
  static constexpr int kKeyDim = kKeys;      // padded with zeros
  static constexpr int kValueDim = kValues;  // of a block
  static constexpr int kWarps = kWarpCount;
  static constexpr int kGroups = kGroupsAWarp;  // of 16 queries, of a warp
  static constexpr int kQueries = 16 * kGroups * kWarps;
  static constexpr int kThreads = kWarpLanes * kWarps;
  static constexpr int kParts = kType == KvType::kF32 ? 2 : 1;  // hi, lo
  static constexpr int kBuffers = kType == KvType::kF16 && kKeyDim <= 256 ? 2 : 1;
  static constexpr bool kQueryInRegisters = kGroups * kKeyDim <= 128 && kParts == 1;
  static constexpr int kQueryBytes = kQueries * kKeyDim * 2;
  static constexpr int kKeyBytes = kTileKeys * kKeyDim * 2;
  static constexpr int kValueBytes = kTileKeys * kValueDim * 2;
  static constexpr int kTileBytes = kParts * (kQueryBytes + kBuffers * (kKeyBytes + kValueBytes));
  // q8_0 rows as they are, in two buffers.
  static constexpr bool kStages = kType == KvType::kQ8_0 && kKeyDim % 128 == 0 && kKeyDim <= 256;
  static constexpr int kRawKeyBytes = kTileKeys * PlaneBytes<KvType::kQ8_0>(kKeyDim);
  static constexpr int kRawBytes = kRawKeyBytes + kTileKeys * PlaneBytes<KvType::kQ8_0>(kValueDim);
  static constexpr int kSharedBytes = kTileBytes + (kStages ? 2 * kRawBytes : 0);
};

struct PromptExchange {
  std::int32_t slot[kMostTileRows];
  std::int32_t index[kMostTileRows];
};

template <class Shape>
class PromptBlock {
 public:
  __device__ PromptBlock(const PromptPlan& plan, std::byte* shared, PromptExchange& exchange)
      : p_(plan), shared_(shared), exchange_(exchange) {
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      max_[i / 2][i % 2] = -INFINITY;
    }
  }

  __device__ void Run() {
    const bool works = Place();
    WaitForInputs();
    AllowNext();
    if (!works) return;
    LoadQueries();
    for (int first = 0; first < rows_;) {
      const int end = SegmentEnd(first);
      WalkSlot(first, end);
      first = end;
    }
    Write();
  }

 private:
  static constexpr KvType kType = Shape::kType;
  static constexpr int kKeyDim = Shape::kKeyDim;
  static constexpr int kValueDim = Shape::kValueDim;
  static constexpr int kGroups = Shape::kGroups;
  static constexpr int kSteps = kKeyDim / 16;
  static constexpr int kKeyGroups = kTileKeys / 8;
  static constexpr int kValueGroups = kValueDim / 8;

  __device__ bool Place() {
    const PassRowsView& rows = p_.attention.rows;
    lane_ = static_cast<int>(threadIdx.x) % kWarpLanes;
    warp_ = static_cast<int>(threadIdx.x) / kWarpLanes;
    kv_head_ = static_cast<int>(blockIdx.x) / p_.value_chunks;
    first_value_ = static_cast<int>(blockIdx.x) % p_.value_chunks * kValueDim;
    // The last rows have the most keys: they start first.
    first_row_ = static_cast<int>(gridDim.y - 1 - blockIdx.y) * p_.tile_rows;
    rows_ = min(p_.tile_rows, *rows.live - first_row_);
    for (int i = static_cast<int>(threadIdx.x); i < rows_; i += Shape::kThreads) {
      exchange_.slot[i] = rows.slot[first_row_ + i];
      exchange_.index[i] = rows.index[first_row_ + i];
    }
    return rows_ > 0;
  }

  // ---- Shared memory.

  __device__ std::byte* QueryTile(int part) const { return shared_ + part * Shape::kQueryBytes; }
  __device__ std::byte* KeyTile(int buffer, int part) const {
    return shared_ + Shape::kParts * Shape::kQueryBytes +
           (buffer * Shape::kParts + part) * Shape::kKeyBytes;
  }
  __device__ std::byte* ValueTile(int buffer, int part) const {
    return shared_ + Shape::kParts * (Shape::kQueryBytes + Shape::kBuffers * Shape::kKeyBytes) +
           (buffer * Shape::kParts + part) * Shape::kValueBytes;
  }

  // Eight f32 values as one chunk of halves; the rest of each into the second part.
  __device__ static void PutChunk(std::byte* high, int low_after, const float* x) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = PackHalves(x[2 * i], x[2 * i + 1]);
    }
    *reinterpret_cast<uint4*>(high) = {words[0], words[1], words[2], words[3]};
    if constexpr (Shape::kParts == 2) {
      std::uint32_t rests[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rests[i] = PackRests(x[2 * i], x[2 * i + 1], words[i]);
      }
      *reinterpret_cast<uint4*>(high + low_after) = {rests[0], rests[1], rests[2], rests[3]};
    }
  }

  // Held to what a half can say.
  __device__ static void ReadEight(const float* from, float* x) {
    const float4 a = reinterpret_cast<const float4*>(from)[0];
    const float4 b = reinterpret_cast<const float4*>(from)[1];
    const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = fminf(fmaxf(eight[i], -65504.0F), 65504.0F);
    }
  }

  __device__ void LoadQueries() {
    const CardAttention& a = p_.attention;
    constexpr int kChunks = kKeyDim / 8;
    for (int item = static_cast<int>(threadIdx.x); item < Shape::kQueries * kChunks;
         item += Shape::kThreads) {
      const int query = item / kChunks;
      const int chunk = item % kChunks;
      const int row = query / p_.ratio;
      float x[8] = {};
      if (row < rows_ && chunk * 8 < a.key_dim) {
        const int head = kv_head_ * p_.ratio + query % p_.ratio;
        ReadEight(a.q + (first_row_ + row) * a.q_stride + head * a.key_dim + chunk * 8, x);
      }
      PutChunk(QueryTile(0) + TileAt<kKeyDim>(query, chunk), Shape::kQueryBytes, x);
    }
    __syncthreads();
    if constexpr (Shape::kQueryInRegisters) {
      const std::uint32_t tile = SharedAddress(QueryTile(0));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          LoadMatrices(query_[step][group],
                       RowsAddress<kKeyDim>(tile, FirstQuery(group), step, lane_));
        }
      }
    }
  }

  __device__ const std::byte* HeadRow(const CardPlane& plane, int dim, int key) const {
    const int row = Shape::kBounded ? RowOfPosition(plane, key) : key;
    return plane.base + slot_ * plane.slot_bytes + static_cast<std::size_t>(row) * plane.row_bytes +
           kv_head_ * PlaneBytes<kType>(dim);
  }

  // Whether a row of the slot's segment sees a key, or one after it.
  __device__ bool Seen(int key) const { return !Shape::kBounded || key >= first_seen_; }

  // Rows [begin, end) of an f16 plane to a tile; rows from end on, and those that no row sees, are
  // zeros.
  template <int kWidth>
  __device__ void CopyTile(const CardPlane& plane, int dim, int first, int begin, int end,
                           std::byte* tile) const {
    constexpr int kItems = kWidth / 8;
    if constexpr (Shape::kThreads % (8 * kItems) == 0) {
      // A thread stays in its column of chunks; its rows are eight or a multiple apart.
      constexpr int kRowStep = Shape::kThreads / kItems;
      const int key = static_cast<int>(threadIdx.x) / kItems;
      const int chunk = static_cast<int>(threadIdx.x) % kItems;
      const int at = first + 8 * chunk;
      const int last = at < dim ? end - begin - key : 0;
      const std::byte* from = HeadRow(plane, dim, begin + key) + 2 * at;
      std::byte* to = tile + TileAt<kWidth>(key, chunk);
#pragma unroll
      for (int row = 0; row < kTileKeys; row += kRowStep) {
        const bool is = row < last && Seen(begin + key + row);
        CopyAsync<16>(to + row * kWidth * 2, from, is ? 16 : 0);
        from += kRowStep * plane.row_bytes;
      }
    } else {
      for (int item = static_cast<int>(threadIdx.x); item < kTileKeys * kItems;
           item += Shape::kThreads) {
        const int key = item / kItems;
        const int chunk = item % kItems;
        const int at = first + 8 * chunk;
        CopyAsync<16>(tile + TileAt<kWidth>(key, chunk), HeadRow(plane, dim, begin + key) + 2 * at,
                      begin + key < end && Seen(begin + key) && at < dim ? 16 : 0);
      }
    }
  }

  // The same of an f32 or q8_0 plane; a thread takes 8 or 32 values at a time.
  template <int kWidth>
  __device__ void ConvertTile(const CardPlane& plane, int dim, int first, int begin, int end,
                              std::byte* tile, int low_after) const {
    constexpr int kValuesAtOnce = kType == KvType::kQ8_0 ? kQ8Values : 8;
    constexpr int kItems = kWidth / kValuesAtOnce;
    for (int item = static_cast<int>(threadIdx.x); item < kTileKeys * kItems;
         item += Shape::kThreads) {
      const int key = item / kItems;
      const int value = item % kItems * kValuesAtOnce;
      const int at = first + value;
      const bool in = begin + key < end && Seen(begin + key) && at < dim;
      const std::byte* from = HeadRow(plane, dim, begin + key) + PlaneBytes<kType>(at);
      if constexpr (kType == KvType::kQ8_0) {
        PutQ8<kWidth>(tile, key, value, in ? from : nullptr);
      } else {
        float x[kValuesAtOnce] = {};
        if (in) {
          ReadEight(reinterpret_cast<const float*>(from), x);
        }
        PutChunk(tile + TileAt<kWidth>(key, value / 8), low_after, x);
      }
    }
  }

  // A q8_0 block (null: zeros) to four chunks of a tile.
  template <int kWidth>
  __device__ static void PutQ8(std::byte* tile, int key, int value, const std::byte* block) {
    std::uint32_t halves[kQ8Values / 2] = {};
    if (block != nullptr) {
      DecodeQ8Halves(block, halves);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<uint4*>(tile + TileAt<kWidth>(key, value / 8 + i)) = {
          halves[4 * i], halves[4 * i + 1], halves[4 * i + 2], halves[4 * i + 3]};
    }
  }

  // ---- q8_0 rows as they are, behind the computation.

  __device__ std::byte* Raw(int buffer) const {
    return shared_ + Shape::kTileBytes + buffer * Shape::kRawBytes;
  }

  template <int kWidth>
  __device__ void StageRows(const CardPlane& plane, int dim, int first, int begin, int end,
                            std::byte* raw) const {
    constexpr int kRowBytes = PlaneBytes<KvType::kQ8_0>(kWidth);
    constexpr int kItems = kRowBytes / 8;
    const int bytes = PlaneBytes<KvType::kQ8_0>(min(kWidth, dim - first));
    // Of a ring, too: a tile's rows lie together.
    const std::byte* source = HeadRow(plane, dim, begin) + PlaneBytes<KvType::kQ8_0>(first);
    for (int item = static_cast<int>(threadIdx.x); item < kTileKeys * kItems;
         item += Shape::kThreads) {
      const int key = item / kItems;
      const int at = item % kItems * 8;
      if (begin + key < end && at < bytes) {
        CopyAsync<8>(raw + key * kRowBytes + at, source + key * plane.row_bytes + at);
      }
    }
  }

  __device__ void Stage(int tile, int buffer, int keys) const {
    const CardAttention& a = p_.attention;
    const int begin = tile * kTileKeys;
    if (begin < keys) {
      StageRows<kKeyDim>(a.keys, a.key_dim, 0, begin, keys, Raw(buffer));
      StageRows<kValueDim>(a.values, a.value_dim, first_value_, begin, keys,
                           Raw(buffer) + Shape::kRawKeyBytes);
    }
    CommitCopies();
  }

  // Rows [unseen, rows) of the tile are there, `dims` of their values.
  template <int kWidth>
  __device__ void DecodeRows(const std::byte* raw, int unseen, int rows, int dims,
                             std::byte* tile) const {
    constexpr int kItems = kWidth / kQ8Values;
    for (int item = static_cast<int>(threadIdx.x); item < kTileKeys * kItems;
         item += Shape::kThreads) {
      const int key = item / kItems;
      const int value = item % kItems * kQ8Values;
      const bool is = key < rows && (!Shape::kBounded || key >= unseen) && value < dims;
      PutQ8<kWidth>(tile, key, value, is ? raw + item * kQ8Bytes : nullptr);
    }
  }

  __device__ void DecodeStage(int tile, int buffer, int keys) const {
    const CardAttention& a = p_.attention;
    const int rows = keys - tile * kTileKeys;
    const int unseen = first_seen_ - tile * kTileKeys;
    DecodeRows<kKeyDim>(Raw(buffer), unseen, rows, a.key_dim, KeyTile(0, 0));
    DecodeRows<kValueDim>(Raw(buffer) + Shape::kRawKeyBytes, unseen, rows,
                          a.value_dim - first_value_, ValueTile(0, 0));
  }

  __device__ void LoadTiles(int tile, int buffer, int keys) const {
    const CardAttention& a = p_.attention;
    const int begin = tile * kTileKeys;
    if (begin < keys) {
      std::byte* key_tile = KeyTile(buffer, 0);
      std::byte* value_tile = ValueTile(buffer, 0);
      if constexpr (kType == KvType::kF16) {
        CopyTile<kKeyDim>(a.keys, a.key_dim, 0, begin, keys, key_tile);
        CopyTile<kValueDim>(a.values, a.value_dim, first_value_, begin, keys, value_tile);
      } else {
        ConvertTile<kKeyDim>(a.keys, a.key_dim, 0, begin, keys, key_tile, Shape::kKeyBytes);
        ConvertTile<kValueDim>(a.values, a.value_dim, first_value_, begin, keys, value_tile,
                               Shape::kValueBytes);
      }
    }
    CommitCopies();
  }

  // ---- A slot's rows [first, end) of the block over the slot's keys.

  __device__ int SegmentEnd(int first) const {
    const int slot = exchange_.slot[first];
    int end = rows_;
    while (exchange_.slot[end - 1] != slot) {
      --end;
    }
    return end;
  }

  __device__ int FirstQuery(int group) const { return 16 * (warp_ * kGroups + group); }
  // Query of this lane's row `half` (g or g + 8) of a group.
  __device__ int QueryOf(int group, int half) const {
    return FirstQuery(group) + lane_ / 4 + 8 * half;
  }
  // Last key that it sees in the segment, or -1.
  __device__ int Limit(int group, int half, int first, int end) const {
    const int row = QueryOf(group, half) / p_.ratio;
    return row >= first && row < end ? exchange_.index[row] : -1;
  }

  __device__ void WalkSlot(int first, int end) {
    slot_ = exchange_.slot[first];
    const int keys = exchange_.index[end - 1] + 1;
    int begin_tile = 0;
    if constexpr (Shape::kBounded) {
      const int window = p_.attention.window;
      first_seen_ = window == 0 ? 0 : max(exchange_.index[first] + 1 - window, 0);
      begin_tile = first_seen_ / kTileKeys;
    }
    int least = keys;
    int most = -1;
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      limit_[i / 2][i % 2] = Limit(i / 2, i % 2, first, end);
      least = min(least, limit_[i / 2][i % 2]);
      most = max(most, limit_[i / 2][i % 2]);
    }
    least = __reduce_min_sync(0xFFFFFFFFU, least);
    most = __reduce_max_sync(0xFFFFFFFFU, most);
    const int tiles = (keys + kTileKeys - 1) / kTileKeys;
    if constexpr (Shape::kBuffers == 2) {
      LoadTiles(begin_tile, begin_tile % 2, keys);
    }
    if (Staged()) {
      Stage(begin_tile, begin_tile % 2, keys);
    }
    for (int tile = begin_tile; tile < tiles; ++tile) {
      const int buffer = Shape::kBuffers == 2 ? tile % 2 : 0;
      NextTile(tile, keys);
      const int begin = tile * kTileKeys;
      if (begin <= most && !Behind(begin, least)) {
        DoTile(begin, buffer, begin + kTileKeys - 1 > least || begin < FirstOf(most));
      }
    }
    __syncthreads();
  }

  // The first key that a row of last key `limit` sees.
  __device__ int FirstOf(int limit) const {
    return Shape::kBounded && p_.attention.window != 0 ? limit - p_.attention.window + 1 : 0;
  }
  // Whether the tile ends before the first key of all rows of the warp; `least`: of their last
  // keys.
  __device__ bool Behind(int begin, int least) const {
    return Shape::kBounded && begin + kTileKeys <= FirstOf(least);
  }

  __device__ bool Staged() const { return Shape::kStages && p_.staged; }

  // The tile is there for the block, and the next one on its way, when this returns.
  __device__ void NextTile(int tile, int keys) const {
    if constexpr (Shape::kBuffers == 2) {
      WaitForCopies<0>();
      __syncthreads();
      LoadTiles(tile + 1, (tile + 1) % 2, keys);
      return;
    }
    WaitForCopies<0>();
    __syncthreads();
    if (Staged()) {
      Stage(tile + 1, (tile + 1) % 2, keys);
      DecodeStage(tile, tile % 2, keys);
    } else {
      LoadTiles(tile, 0, keys);
      WaitForCopies<0>();
    }
    __syncthreads();
  }

  __device__ void DoTile(int begin, int buffer, bool masked) {
    float s[kGroups][kKeyGroups][4] = {};
    Scores(buffer, s);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (masked) {
        Mask(begin, group, s[group]);
      }
      Softmax(group, s[group]);
    }
    AddValues(buffer, s);
  }

  // One part (0: hi, 1: lo) of the queries of a step.
  __device__ void LoadQuery(int part, int step, std::uint32_t (&out)[kGroups][4]) const {
    const std::uint32_t tile = SharedAddress(QueryTile(part));
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      LoadMatrices(out[group], RowsAddress<kKeyDim>(tile, FirstQuery(group), step, lane_));
    }
  }

  // sums[group][column .. column + 1] += a[group] * b, for all groups.
  template <int kColumns>
  __device__ static void AddProducts(float (&sums)[kGroups][kColumns][4], int column,
                                     const std::uint32_t (&a)[kGroups][4],
                                     const std::uint32_t (&b)[4]) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      MultiplyAdd(sums[group][column], a[group], b[0], b[1]);
      MultiplyAdd(sums[group][column + 1], a[group], b[2], b[3]);
    }
  }

  __device__ void Scores(int buffer, float (&s)[kGroups][kKeyGroups][4]) const {
    const std::uint32_t keys = SharedAddress(KeyTile(buffer, 0));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t high[kGroups][4];
      std::uint32_t low[kGroups][4];
      if constexpr (!Shape::kQueryInRegisters) {
        LoadQuery(0, step, high);
      }
      if constexpr (Shape::kParts == 2) {
        LoadQuery(1, step, low);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyGroups / 2; ++pair) {
        const std::uint32_t at = ColumnsAddress<kKeyDim>(keys, 16 * pair, step, lane_);
        std::uint32_t k[4];
        LoadMatrices(k, at);
        if constexpr (Shape::kParts == 2) {
          std::uint32_t rest[4];
          LoadMatrices(rest, at + Shape::kKeyBytes);
          AddProducts(s, 2 * pair, high, rest);
          AddProducts(s, 2 * pair, low, k);
        }
        if constexpr (Shape::kQueryInRegisters) {
          AddProducts(s, 2 * pair, query_[step], k);
        } else {
          AddProducts(s, 2 * pair, high, k);
        }
      }
    }
  }

  __device__ void Mask(int begin, int group, float (&s)[kKeyGroups][4]) const {
    const int first = begin + 2 * (lane_ % 4);
#pragma unroll
    for (int column = 0; column < kKeyGroups; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int limit = limit_[group][i / 2];
        const int key = first + 8 * column + i % 2;
        if (key > limit || (Shape::kBounded && key < FirstOf(limit))) {
          s[column][i] = -INFINITY;
        }
      }
    }
  }

  // Scores to exp2((s - max) * exponent), the maximum and sum moved on, O brought to the new
  // maximum.
  __device__ void Softmax(int group, float (&s)[kKeyGroups][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& max = max_[group][half];
      float& sum = sum_[group][half];
      float most = max;
#pragma unroll
      for (int column = 0; column < kKeyGroups; ++column) {
        most = fmaxf(most, fmaxf(s[column][2 * half], s[column][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
      const float base = most == -INFINITY ? 0.0F : most;  // a row without keys so far
      const float offset = base * p_.exponent;
      if (__any_sync(0xFFFFFFFFU, most != max)) {
        const float factor = most == max ? 1.0F : FastExp2(__fmaf_rn(max, p_.exponent, -offset));
        sum *= factor;
#pragma unroll
        for (int column = 0; column < kValueGroups; ++column) {
          o_[group][column][2 * half] *= factor;
          o_[group][column][2 * half + 1] *= factor;
        }
        max = most;
      }
#pragma unroll
      for (int column = 0; column < kKeyGroups; ++column) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[column][i] = FastExp2(__fmaf_rn(s[column][i], p_.exponent, -offset));
          sum += s[column][i];
        }
      }
    }
  }

  __device__ void AddValues(int buffer, const float (&s)[kGroups][kKeyGroups][4]) {
    const std::uint32_t values = SharedAddress(ValueTile(buffer, 0));
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step) {
      std::uint32_t high[kGroups][4];
      std::uint32_t low[kGroups][4];
#pragma unroll
      for (int i = 0; i < 4 * kGroups; ++i) {
        const float* pair = s[i / 4][2 * step + i / 2 % 2] + i % 2 * 2;
        high[i / 4][i % 4] = PackHalves(pair[0], pair[1]);
        if constexpr (Shape::kParts == 2) {
          low[i / 4][i % 4] = PackRests(pair[0], pair[1], high[i / 4][i % 4]);
        }
      }
#pragma unroll
      for (int pair = 0; pair < kValueGroups / 2; ++pair) {
        const std::uint32_t at = TransposedAddress<kValueDim>(values, 16 * step, pair, lane_);
        std::uint32_t v[4];
        LoadMatricesTransposed(v, at);
        if constexpr (Shape::kParts == 2) {
          std::uint32_t rest[4];
          LoadMatricesTransposed(rest, at + Shape::kValueBytes);
          AddProducts(o_, 2 * pair, high, rest);
          AddProducts(o_, 2 * pair, low, v);
        }
        AddProducts(o_, 2 * pair, high, v);
      }
    }
  }

  __device__ void Write() const {
    const CardAttention& a = p_.attention;
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      const int group = i / 2;
      const int half = i % 2;
      float sum = sum_[group][half];
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
      const int query = QueryOf(group, half);
      const int row = query / p_.ratio;
      if (row >= rows_) continue;
      const int head = kv_head_ * p_.ratio + query % p_.ratio;
      const float factor = Shape::kBounded && a.sinks != nullptr
                               ? FactorWithSink(a.sinks[head], max_[group][half], sum)
                           : sum > 0.0F ? 1.0F / sum
                                        : 0.0F;
      float* out = a.out + (first_row_ + row) * a.out_stride + head * a.value_dim;
#pragma unroll
      for (int column = 0; column < kValueGroups; ++column) {
        const int value = first_value_ + 8 * column + 2 * (lane_ % 4);
        if (value < a.value_dim) {
          *reinterpret_cast<float2*>(out + value) = {o_[group][column][2 * half] * factor,
                                                     o_[group][column][2 * half + 1] * factor};
        }
      }
    }
  }

  // What O is multiplied by where a sink is one more key without a value; `sum` of exponentials
  // over that of `max`.
  __device__ float FactorWithSink(float sink, float max, float sum) const {
    constexpr float kLog2E = 0x1.715476p+0F;
    const float of_keys = max * p_.exponent;  // powers of two
    const float of_sink = sink * kLog2E;
    const float larger = fmaxf(of_keys, of_sink);
    const float keep = FastExp2(of_keys - larger);
    return keep / __fmaf_rn(sum, keep, FastExp2(of_sink - larger));
  }

  const PromptPlan& p_;
  std::byte* shared_;
  PromptExchange& exchange_;
  int lane_, warp_;
  int kv_head_, first_value_;
  int first_row_, rows_;
  int slot_ = 0;
  int first_seen_ = 0;  // of bounded shapes: the first key that a row of the segment sees
  int limit_[kGroups][2];
  std::uint32_t query_[Shape::kQueryInRegisters ? kSteps : 1][kGroups][4];
  float max_[kGroups][2];
  float sum_[kGroups][2] = {};
  float o_[kGroups][kValueGroups][4] = {};
};

}  // namespace bloomery::kernels::cuda

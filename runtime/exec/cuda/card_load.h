// The way of a model's weights to the card: several threads read the files into a ring of pinned
// memory, one stream copies from there to a few staging rooms on the card, a second repacks what is
// complete into card form meanwhile. What needs no repacking is copied to its place. The calling
// thread alone talks to the driver: it enqueues everything, a batch by one copy, and tells readers
// whose copies are done; one synchronisation at the end. Owns the ring, the rooms and the threads
// for as long as the load takes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels-common/cuda/launch.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/memory/parallel_read.h"

namespace bloomery::exec {

// A part of an integer matrix, or of a bank's, that is repacked by one launch: whole experts, or
// whole tiles of 16 rows of one.
struct CardBatch {
  uint64_t begin = 0;  // from the weight's first byte in the file
  uint64_t bytes = 0;  // there
  uint64_t to = 0;     // from the weight's first byte on the card
  uint64_t rows = 0;   // of each expert
  uint64_t experts = 0;
};

// All of a weight in card form, in the order of its bytes, in batches of at most `most` bytes (but
// at least a tile's rows).
std::vector<CardBatch> CutBatches(const kernels::FormatTraits& format, const plugin::Weight& weight,
                                  uint64_t most);
// The largest batch of a weight.
uint64_t LargestBatch(const kernels::FormatTraits& format, const plugin::Weight& weight,
                      uint64_t most);

// Rooms on the card, each of a batch: the copy of one, the repacking of another, one more to go on.
inline constexpr uint64_t kLoadRooms = 3;
inline constexpr uint64_t kLoadBatchBytes = uint64_t{16} << 20;
// A batch lies in its room as far behind a multiple of this as in the file.
inline constexpr uint64_t kLoadRoomAlignment = 256;
// Of a room for batches of up to `bytes`.
constexpr uint64_t LoadRoomBytes(uint64_t bytes) {
  return (bytes + 2 * kLoadRoomAlignment - 1) / kLoadRoomAlignment * kLoadRoomAlignment;
}

// Takes `memory` for all weights of `layout` and loads them there. `progress(done, total)` is
// called by this thread now and then. Throws Error(kNoMemory) where host or card have not what was
// planned, the errors of reading, and what `progress` throws.
CardLoadReport LoadCardWeights(const model::ModelFile& model,
                               const plugin::Description& description,
                               const CardWeightLayout& layout, CardBuffer* memory,
                               const kernels::cuda::Launch& launch,
                               const std::function<void(uint64_t, uint64_t)>& progress);

// Of the host's memory, pinned while weights load.
uint64_t LoadHostBytes();

}  // namespace bloomery::exec

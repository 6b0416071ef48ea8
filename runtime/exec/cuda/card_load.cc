#include "runtime/exec/cuda/card_load.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/memory/finite.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/ring_read.h"

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPage = File::kDirectAlignment;
// What is read and copied as one: few calls of the driver, each of which takes an enqueuing thread
// tens of microseconds on a virtual machine, and the link idles little between copies.
constexpr uint64_t kUnitBytes = kLoadBatchBytes;
constexpr uint64_t kUnitRingBytes = kUnitBytes + 2 * kPage;  // both ends lie inside pages
constexpr uint64_t kRingUnits = 8;
// Units read but not yet copied, at most: each has its event.
constexpr size_t kUnitsMost = 64;
// The loading thread polls so long before it sleeps: about what the link takes for a unit.
constexpr std::chrono::microseconds kPoll{500};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stretch of a weight that is read as one and copied by one call.
struct Unit {
  uint32_t weight = 0;
  uint64_t begin = 0;  // of the weight
  uint64_t bytes = 0;
  uint64_t skip = 0;  // what was read before them, from the page's beginning
  CardBatch batch;    // that it is of; no bytes: the weight lies as in the file
};

// The weights' units in order, and what is read for each.
struct Units {
  std::vector<Unit> units;
  std::vector<memory::RingStretch> stretches;
  uint64_t ring_bytes = 0;

  Units(const model::ModelFile& model, const plugin::Description& description,
        const CardWeightLayout& layout) {
    for (const uint32_t i : layout.order()) {
      const plugin::Weight& weight = description.weights[i];
      if (layout.place(i).layout == CardLayout::kFileRows) {
        Add(model, weight, i, {}, 0, weight.bytes);
      } else if (layout.place(i).layout == CardLayout::kCardForm) {
        const kernels::FormatTraits& format = *kernels::FindFormat(static_cast<int>(weight.type));
        for (const CardBatch& batch : CutBatches(format, weight, kLoadBatchBytes)) {
          Add(model, weight, i, batch, batch.begin, batch.begin + batch.bytes);
        }
      }
    }
    for (const memory::RingStretch& stretch : stretches) {
      ring_bytes += memory::RingBytes(stretch.bytes);
    }
    ring_bytes = std::min(ring_bytes, LoadHostBytes());
    memory::PlaceInRing(stretches, ring_bytes, kUnitsMost);
  }

 private:
  // [begin, end) of a weight.
  void Add(const model::ModelFile& model, const plugin::Weight& weight, uint32_t index,
           const CardBatch& batch, uint64_t begin, uint64_t end) {
    const model::TensorInfo& tensor = model.tensors()[weight.tensor];
    const File& file = *model.files()[tensor.file];
    const uint64_t file_begin = tensor.offset + weight.offset;
    for (uint64_t at = begin; at < end; at += kUnitBytes) {
      const uint64_t bytes = std::min(kUnitBytes, end - at);
      const uint64_t first = (file_begin + at) / kPage * kPage;
      const uint64_t last =
          std::min(memory::RingBytes(file_begin + at + bytes), file.size());  // whole pages
      units.push_back({.weight = index,
                       .begin = at,
                       .bytes = bytes,
                       .skip = file_begin + at - first,
                       .batch = batch});
      stretches.push_back({.file = &file, .offset = first, .bytes = last - first});
    }
  }
};

// The ring: pages of the system's, large ones where it has them, registered with the driver when
// the first reads are already under way. Pinning such memory takes a fraction of what the driver
// needs for memory of its own.
class PinnedRing {
 public:
  explicit PinnedRing(uint64_t bytes) : memory_(bytes, kWhat) {}
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;
  ~PinnedRing() {
    if (pinned_) cudaHostUnregister(memory_.data());
  }

  std::span<std::byte> bytes() const { return memory_.bytes(); }

  void Pin() {
    if (memory_.size() == 0) return;
    CheckPinning(cudaHostRegister(memory_.data(), memory_.size(), cudaHostRegisterDefault),
                 memory_.size(), kWhat);
    pinned_ = true;
  }

 private:
  static constexpr const char* kWhat = "weights on their way to the card";

  memory::HostBuffer memory_;
  bool pinned_ = false;
};

// The card's side: copies in one stream, repacking in the launch's.
class CardCopies {
 public:
  CardCopies(const kernels::cuda::Launch& launch, const CardWeightLayout& layout)
      : launch_(launch), rooms_(layout.staging_bytes(), "weights on their way into card form") {
    const uint64_t bytes = layout.staging_bytes() / kLoadRooms;
    for (size_t i = 0; i < kLoadRooms; ++i) room_[i].at = rooms_.data() + i * bytes;
  }
  CardCopies(const CardCopies&) = delete;
  CardCopies& operator=(const CardCopies&) = delete;
  ~CardCopies() { cudaStreamSynchronize(stream_.get()); }

  // The next unit, `from` its bytes, `to` where its weight begins on the card. `file_offset`: of
  // the weight.
  void Enqueue(const Unit& unit, const plugin::Weight& weight, uint64_t file_offset,
               std::span<const std::byte> from, std::byte* to) {
    if (enqueued_ == 0) CheckCuda(cudaEventRecord(begin_.get(), stream_.get()), kWhat);
    const CardBatch& batch = unit.batch;
    if (batch.bytes == 0) {
      Copy(weight, from, to + unit.begin);
      return;
    }
    Room& room = room_[next_ % kLoadRooms];
    if (unit.begin == batch.begin && next_ >= kLoadRooms) {
      CheckCuda(cudaStreamWaitEvent(stream_.get(), room.free.get(), 0), kWhat);
    }
    std::byte* const begin = room.at + (file_offset + batch.begin) % kLoadRoomAlignment;
    const cudaEvent_t copied = Copy(weight, from, begin + (unit.begin - batch.begin));
    if (unit.begin + unit.bytes < batch.begin + batch.bytes) return;
    CheckCuda(cudaStreamWaitEvent(launch_.stream, copied, 0), kWhat);
    CheckCuda(kernels::cuda::ToCardForm(launch_, static_cast<int>(weight.type), begin,
                                        to + batch.to, batch.rows, weight.ne[0], batch.experts),
              "repacking tensor '" + weight.name + "'");
    CheckCuda(cudaEventRecord(room.free.get(), launch_.stream), kWhat);
    ++next_;
  }

  size_t enqueued() const { return enqueued_; }

  // Units that have been copied, as far as is known without waiting.
  size_t Copied() {
    while (copied_ < enqueued_) {
      const cudaError_t status = cudaEventQuery(copied_events_[copied_ % kUnitsMost].get());
      if (status == cudaErrorNotReady) {
        cudaGetLastError();  // no failure, but the next launch would report it
        break;
      }
      CheckCuda(status, kWhat);
      ++copied_;
    }
    return copied_;
  }

  // Waits for everything, and what it took on the card.
  void Finish(CardLoadReport* report) {
    if (enqueued_ == 0) return CheckCuda(cudaStreamSynchronize(launch_.stream), kWhat);
    CheckCuda(cudaEventRecord(last_.get(), stream_.get()), kWhat);
    CheckCuda(cudaStreamWaitEvent(launch_.stream, last_.get(), 0), kWhat);
    CheckCuda(cudaEventRecord(end_.get(), launch_.stream), kWhat);
    CheckCuda(cudaStreamSynchronize(launch_.stream), kWhat);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin_.get(), last_.get()), kWhat);
    report->link = static_cast<double>(milliseconds) * 1e-3;
    CheckCuda(cudaEventElapsedTime(&milliseconds, last_.get(), end_.get()), kWhat);
    report->tail = static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  static constexpr const char* kWhat = "loading weights";

  struct Room {
    std::byte* at = nullptr;
    CardEvent free;
  };

  cudaEvent_t Copy(const plugin::Weight& weight, std::span<const std::byte> from, std::byte* to) {
    CheckCuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_.get()),
              "copying tensor '" + weight.name + "' to the card");
    const cudaEvent_t copied = copied_events_[enqueued_ % kUnitsMost].get();
    CheckCuda(cudaEventRecord(copied, stream_.get()), kWhat);
    ++enqueued_;
    return copied;
  }

  kernels::cuda::Launch launch_;
  CardBuffer rooms_;
  CardStream stream_;
  std::array<Room, kLoadRooms> room_;
  std::array<CardEvent, kUnitsMost> copied_events_;
  size_t next_ = 0;      // rooms taken so far
  size_t enqueued_ = 0;  // units
  size_t copied_ = 0;
  CardEvent begin_{cudaEventDefault};
  CardEvent last_{cudaEventDefault};
  CardEvent end_{cudaEventDefault};
};

// Waits until unit `i` is read, frees what has been copied meanwhile, and notes what it waited for.
void AwaitUnit(size_t i, memory::RingReader& reader, CardCopies& copies, CardLoadReport* report) {
  Clock::time_point slept = Clock::now();
  size_t copied = copies.Copied();
  reader.Free(copied);
  while (!reader.Ready(i)) {
    const Clock::time_point begin = Clock::now();
    const bool idle = copied == copies.enqueued();
    if (begin - slept < kPoll) {
      std::this_thread::yield();
    } else {  // longer than a unit's copy takes: a drive, not the page cache
      reader.Await(i, kPoll);
    }
    if (const size_t now = copies.Copied(); now != copied) {
      copied = now;
      slept = Clock::now();
      reader.Free(copied);
    }
    (idle ? report->files : report->copies) += SecondsSince(begin);
  }
}

// A weight without kernels in its own format, as rows of F16 on the card.
void UploadDecoded(const model::ModelFile& model, const plugin::Weight& weight, std::byte* to) {
  const kernels::FormatTraits& format = *kernels::FindFormat(static_cast<int>(weight.type));
  const uint64_t k = weight.ne[0];
  const uint64_t row_bytes = kernels::RowBytes(format, k);
  const uint64_t rows = weight.bytes / row_bytes;
  const uint64_t rows_most = std::max<uint64_t>(1, limits::kLoadReadBytes / (k * sizeof(float)));
  std::vector<std::byte> source(rows_most * row_bytes);
  std::vector<float> values(k);
  std::vector<uint16_t> halves(rows_most * k);
  for (uint64_t row = 0; row < rows; row += rows_most) {
    const uint64_t count = std::min(rows_most, rows - row);
    model.ReadTensor(weight.tensor, weight.offset + row * row_bytes,
                     std::span(source).first(count * row_bytes));
    for (uint64_t r = 0; r < count; ++r) {
      format.decode_row(source.data() + r * row_bytes, values.data(), k);
      std::ranges::transform(values, halves.begin() + static_cast<ptrdiff_t>(r * k),
                             kernels::FloatToHalf);
    }
    CheckCuda(cudaMemcpy(to + row * k * sizeof(uint16_t), halves.data(),
                         count * k * sizeof(uint16_t), cudaMemcpyHostToDevice),
              "copying tensor '" + weight.name + "' to the card");
  }
}

}  // namespace

std::vector<CardBatch> CutBatches(const kernels::FormatTraits& format, const plugin::Weight& weight,
                                  uint64_t most) {
  constexpr uint64_t kTileRows = kernels::cuda::kCardRows;
  const uint64_t k = weight.ne[0];
  const uint64_t n = weight.ne[1];
  const uint64_t experts = weight.ne[2] * weight.ne[3];
  const uint64_t row_bytes = kernels::RowBytes(format, k);
  const uint64_t card_bytes = kernels::cuda::CardBytes(format.ggml_type, n, k);
  std::vector<CardBatch> batches;
  if (row_bytes * n <= most) {
    const uint64_t each = most / (row_bytes * n);
    for (uint64_t first = 0; first < experts; first += each) {
      const uint64_t count = std::min(each, experts - first);
      batches.push_back({.begin = first * n * row_bytes,
                         .bytes = count * n * row_bytes,
                         .to = first * card_bytes,
                         .rows = n,
                         .experts = count});
    }
    return batches;
  }
  const uint64_t rows = std::max<uint64_t>(1, most / (row_bytes * kTileRows)) * kTileRows;
  for (uint64_t expert = 0; expert < experts; ++expert) {
    for (uint64_t first = 0; first < n; first += rows) {
      const uint64_t count = std::min(rows, n - first);
      batches.push_back(
          {.begin = (expert * n + first) * row_bytes,
           .bytes = count * row_bytes,
           .to = expert * card_bytes + kernels::cuda::CardBytes(format.ggml_type, first, k),
           .rows = count,
           .experts = 1});
    }
  }
  return batches;
}

uint64_t LargestBatch(const kernels::FormatTraits& format, const plugin::Weight& weight,
                      uint64_t most) {
  uint64_t largest = 0;
  for (const CardBatch& batch : CutBatches(format, weight, most)) {
    largest = std::max(largest, batch.bytes);
  }
  return largest;
}

uint64_t LoadHostBytes() { return kRingUnits * kUnitRingBytes; }

CardLoadReport LoadCardWeights(const model::ModelFile& model,
                               const plugin::Description& description,
                               const CardWeightLayout& layout, CardBuffer* memory,
                               const kernels::cuda::Launch& launch,
                               const std::function<void(uint64_t, uint64_t)>& progress) {
  const Clock::time_point start = Clock::now();
  CardLoadReport report;
  const auto timed = [](double* sum, const auto& step) {
    const Clock::time_point begin = Clock::now();
    step();
    *sum += SecondsSince(begin);
  };
  uint64_t total = 0;
  for (const uint32_t i : layout.order()) total += description.weights[i].bytes;
  const Units units(model, description, layout);
  PinnedRing ring(units.ring_bytes);
  memory::RingReader reader(units.stretches, ring.bytes());
  timed(&report.memory, [&] { *memory = CardBuffer(layout.bytes(), "weights"); });
  timed(&report.pinning, [&] { ring.Pin(); });
  CardCopies copies(launch, layout);
  uint64_t done = 0;
  for (size_t i = 0; i < units.units.size(); ++i) {
    const Unit& unit = units.units[i];
    const memory::RingStretch& stretch = units.stretches[i];
    const plugin::Weight& weight = description.weights[unit.weight];
    AwaitUnit(i, reader, copies, &report);
    const std::span<const std::byte> bytes =
        ring.bytes().subspan(stretch.at + unit.skip, unit.bytes);
    memory::CheckFiniteStretch(model, weight.tensor, weight.offset + unit.begin, bytes);
    copies.Enqueue(unit, weight, stretch.offset + unit.skip - unit.begin, bytes,
                   memory->data() + layout.place(unit.weight).at);
    done += unit.bytes;
    if (progress && done < total) progress(done, total);
  }
  for (const uint32_t i : layout.order()) {
    const CardPlace& place = layout.place(i);
    if (place.layout != CardLayout::kDecoded) continue;
    UploadDecoded(model, description.weights[i], memory->data() + place.at);
  }
  timed(&report.copies, [&] { copies.Finish(&report); });
  if (progress) progress(total, total);
  report.read = {
      .bytes = total, .direct_bytes = reader.direct_bytes(), .seconds = SecondsSince(start)};
  return report;
}

}  // namespace bloomery::exec

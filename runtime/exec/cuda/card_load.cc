#include "runtime/exec/cuda/card_load.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/memory/finite.h"

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPage = File::kDirectAlignment;
// Pinned pieces: reads in flight, what is read but waits for an earlier piece, and copies.
constexpr size_t kRingPieces = 4 * static_cast<size_t>(limits::kLoadReadsMax);

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stretch of a file that fits a pinned piece, and what of it is a weight's.
struct Piece {
  const File* file = nullptr;
  uint64_t offset = 0;  // a multiple of the page
  uint64_t bytes = 0;   // to read
  uint64_t skip = 0;    // bytes at the front that belong to another tensor
  uint64_t use = 0;
  uint32_t weight = 0;
  uint64_t weight_offset = 0;  // of the first used byte, in the weight
};

void CutWeight(const model::ModelFile& model, const plugin::Weight& weight, uint32_t index,
               std::vector<Piece>* pieces) {
  const model::TensorInfo& tensor = model.tensors()[weight.tensor];
  const File& file = *model.files()[tensor.file];
  const uint64_t begin = tensor.offset + weight.offset;
  const uint64_t end = begin + weight.bytes;
  for (uint64_t at = begin / kPage * kPage; at < end; at += limits::kLoadReadBytes) {
    Piece piece;
    piece.file = &file;
    piece.offset = at;
    const uint64_t stop = std::min(at + limits::kLoadReadBytes, (end + kPage - 1) / kPage * kPage);
    piece.bytes = std::min(stop, file.size()) - at;
    const uint64_t first = std::max(at, begin);
    piece.skip = first - at;
    piece.use = std::min(stop, end) - first;
    piece.weight = index;
    piece.weight_offset = first - begin;
    pieces->push_back(piece);
  }
}

// Pieces read by several threads into the ring, handed out in order. A reader waits for the copy of
// what lay in its place before: whoever enqueues copies wakes nobody for it, which on a virtual
// machine costs more than the copy itself.
class PieceReader {
 public:
  PieceReader(std::span<const Piece> pieces, PinnedBuffer ring, int ordinal)
      : pieces_(pieces), ring_(std::move(ring)), ready_(pieces.size(), 0) {
    for (size_t i = 0; i < kRingPieces; ++i) copied_.emplace_back();
    const size_t most = std::min(pieces.size(), static_cast<size_t>(limits::kLoadReadsMax));
    try {
      for (size_t i = 0; i < most; ++i) {
        threads_.emplace_back([this, ordinal] {
          cudaSetDevice(ordinal);
          while (Read()) {
          }
        });
      }
    } catch (...) {  // those that run would wait for ever
      Stop(nullptr);
      throw;
    }
  }
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;
  // Copies under way are waited for: they read the ring.
  ~PieceReader() {
    Stop(nullptr);
    threads_.clear();
    for (const CardEvent& copied : copied_) cudaEventSynchronize(copied.get());
  }

  // The bytes of piece `i`, once they are read.
  std::span<const std::byte> Wait(size_t i) {
    std::unique_lock lock(mutex_);
    wanted_ = i;
    arrived_.wait(lock, [&] { return ready_[i] != 0 || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    return {Room(i), pieces_[i].bytes};
  }

  // Piece `i`, the next in order, has its copies in `stream`; its place is free when they are done.
  void Enqueued(size_t i, cudaStream_t stream) {
    CheckCuda(cudaEventRecord(copied_[i % kRingPieces].get(), stream), "loading weights");
    {
      const std::lock_guard lock(mutex_);
      enqueued_ = i + 1;
    }
    room_.notify_all();  // nobody waits here but where reading is a whole ring ahead
  }

  uint64_t direct() const { return direct_.load(std::memory_order_relaxed); }

 private:
  std::byte* Room(size_t i) const {
    return ring_.data() + i % kRingPieces * limits::kLoadReadBytes;
  }

  bool Read() {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces_.size()) return false;
    try {
      if (!WaitForRoom(i)) return false;
      const Piece& piece = pieces_[i];
      direct_.fetch_add(piece.file->ReadOnceAt(piece.offset, {Room(i), piece.bytes}),
                        std::memory_order_relaxed);
    } catch (...) {
      Stop(std::current_exception());
      return false;
    }
    const std::lock_guard lock(mutex_);
    ready_[i] = 1;
    if (i == wanted_) arrived_.notify_one();
    return !stopped_;
  }

  // False where reading has been stopped.
  bool WaitForRoom(size_t i) {
    if (i < kRingPieces) return true;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return enqueued_ + kRingPieces > i || stopped_; });
      if (stopped_) return false;
    }
    CheckCuda(cudaEventSynchronize(copied_[i % kRingPieces].get()), "loading weights");
    return true;
  }

  void Stop(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (failure && !failure_) failure_ = failure;
    arrived_.notify_all();
    room_.notify_all();
  }

  std::span<const Piece> pieces_;
  PinnedBuffer ring_;
  std::deque<CardEvent> copied_;  // by place in the ring
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> direct_{0};
  std::mutex mutex_;
  std::condition_variable arrived_;  // the calling thread waits
  std::condition_variable room_;     // readers wait
  std::vector<char> ready_;
  size_t wanted_ = 0;
  size_t enqueued_ = 0;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last: they end before what they use
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

  // Bytes of a weight to where it lies on the card.
  void Copy(const plugin::Weight& weight, std::span<const std::byte> from, std::byte* to) {
    if (!begun_) CheckCuda(cudaEventRecord(begin_.get(), stream_.get()), "timing the load");
    begun_ = true;
    CheckCuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_.get()),
              "copying tensor '" + weight.name + "' to the card");
  }

  // Bytes of a weight, from `offset` of it on, through rooms into card form at `to`. `file_offset`:
  // of the weight.
  void Pack(const plugin::Weight& weight, uint64_t file_offset, std::span<const std::byte> from,
            uint64_t offset, std::byte* to) {
    if (offset == 0) {
      const kernels::FormatTraits& format = *kernels::FindFormat(static_cast<int>(weight.type));
      batches_ = CutBatches(format, weight, kLoadBatchBytes);
      batch_ = 0;
    }
    while (!from.empty()) {
      const CardBatch& batch = batches_[batch_];
      Room& room = room_[next_ % kLoadRooms];
      if (offset == batch.begin && next_ >= kLoadRooms) {
        CheckCuda(cudaStreamWaitEvent(stream_.get(), room.free.get(), 0), "loading weights");
      }
      const uint64_t end = batch.begin + batch.bytes;
      const uint64_t count = std::min<uint64_t>(from.size(), end - offset);
      std::byte* const begin = room.at + (file_offset + batch.begin) % kLoadRoomAlignment;
      Copy(weight, from.first(count), begin + (offset - batch.begin));
      from = from.subspan(count);
      offset += count;
      if (offset < end) continue;
      CheckCuda(cudaEventRecord(room.full.get(), stream_.get()), "loading weights");
      CheckCuda(cudaStreamWaitEvent(launch_.stream, room.full.get(), 0), "loading weights");
      CheckCuda(kernels::cuda::ToCardForm(launch_, static_cast<int>(weight.type), begin,
                                          to + batch.to, batch.rows, weight.ne[0], batch.experts),
                "repacking tensor '" + weight.name + "'");
      CheckCuda(cudaEventRecord(room.free.get(), launch_.stream), "loading weights");
      ++next_;
      ++batch_;
    }
  }

  cudaStream_t stream() const { return stream_.get(); }

  // Waits for everything, and what it took on the card.
  void Finish(CardLoadReport* report) {
    const std::string what = "loading weights";
    if (!begun_) return CheckCuda(cudaStreamSynchronize(launch_.stream), what);
    CheckCuda(cudaEventRecord(last_.get(), stream_.get()), what);
    CheckCuda(cudaStreamWaitEvent(launch_.stream, last_.get(), 0), what);
    CheckCuda(cudaEventRecord(end_.get(), launch_.stream), what);
    CheckCuda(cudaStreamSynchronize(launch_.stream), what);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin_.get(), last_.get()), what);
    report->link = static_cast<double>(milliseconds) * 1e-3;
    CheckCuda(cudaEventElapsedTime(&milliseconds, last_.get(), end_.get()), what);
    report->tail = static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  struct Room {
    std::byte* at = nullptr;
    CardEvent full;
    CardEvent free;
  };

  kernels::cuda::Launch launch_;
  CardBuffer rooms_;
  CardStream stream_;
  std::array<Room, kLoadRooms> room_;
  size_t next_ = 0;                 // rooms taken so far
  std::vector<CardBatch> batches_;  // of the weight that is copied
  size_t batch_ = 0;
  bool begun_ = false;
  CardEvent begin_{cudaEventDefault};
  CardEvent last_{cudaEventDefault};
  CardEvent end_{cudaEventDefault};
};

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

uint64_t LoadHostBytes() { return kRingPieces * limits::kLoadReadBytes; }

CardLoadReport LoadCardWeights(const model::ModelFile& model,
                               const plugin::Description& description,
                               const CardWeightLayout& layout, CardBuffer* memory,
                               const kernels::cuda::Launch& launch,
                               const std::function<void(uint64_t, uint64_t)>& progress) {
  const Clock::time_point start = Clock::now();
  CardLoadReport report;
  const auto timed = [](double* sum, const auto& wait) {
    const Clock::time_point begin = Clock::now();
    auto result = wait();
    *sum += SecondsSince(begin);
    return result;
  };
  int ordinal = 0;
  CheckCuda(cudaGetDevice(&ordinal), "loading weights");
  std::future<PinnedBuffer> ring = std::async(std::launch::async, [ordinal] {
    cudaSetDevice(ordinal);
    return PinnedBuffer(LoadHostBytes(), "weights on their way to the card");
  });
  std::vector<Piece> pieces;
  uint64_t total = 0;
  for (const uint32_t i : layout.order()) {
    const plugin::Weight& weight = description.weights[i];
    total += weight.bytes;
    if (layout.place(i).layout != CardLayout::kDecoded) CutWeight(model, weight, i, &pieces);
  }
  *memory = timed(&report.memory, [&] { return CardBuffer(layout.bytes(), "weights"); });
  CardCopies copies(launch, layout);
  PieceReader reader(pieces, timed(&report.pinning, [&] { return ring.get(); }), ordinal);
  uint64_t done = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const plugin::Weight& weight = description.weights[piece.weight];
    const CardPlace& place = layout.place(piece.weight);
    const std::span<const std::byte> bytes =
        timed(&report.reading, [&] { return reader.Wait(i); }).subspan(piece.skip, piece.use);
    memory::CheckFiniteStretch(model, weight.tensor, weight.offset + piece.weight_offset, bytes);
    std::byte* const to = memory->data() + place.at;
    if (place.layout == CardLayout::kCardForm) {
      copies.Pack(weight, piece.offset + piece.skip - piece.weight_offset, bytes,
                  piece.weight_offset, to);
    } else {
      copies.Copy(weight, bytes, to + piece.weight_offset);
    }
    reader.Enqueued(i, copies.stream());
    done += piece.use;
    if (progress && done < total) progress(done, total);
  }
  for (const uint32_t i : layout.order()) {
    const CardPlace& place = layout.place(i);
    if (place.layout != CardLayout::kDecoded) continue;
    UploadDecoded(model, description.weights[i], memory->data() + place.at);
  }
  timed(&report.end, [&] {
    copies.Finish(&report);
    return true;
  });
  if (progress) progress(total, total);
  report.read = {.bytes = total, .direct_bytes = reader.direct(), .seconds = SecondsSince(start)};
  return report;
}

}  // namespace bloomery::exec

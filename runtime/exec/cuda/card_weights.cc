#include "runtime/exec/cuda/card_weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

#include "kernels-common/elementwise/cuda/elementwise.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/memory/finite.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kAlignment = 256;  // of a weight on the card
constexpr uint64_t kPage = File::kDirectAlignment;
// Pinned pieces on their way to the card: twice the reads in flight.
constexpr size_t kRingPieces = 2 * static_cast<size_t>(limits::kLoadReadsMax);

const kernels::FormatTraits& FormatOf(const model::ModelFile& model, const plugin::Weight& weight) {
  const kernels::FormatTraits* format = kernels::FindFormat(static_cast<int>(weight.type));
  if (format != nullptr) return *format;
  throw Error(ErrorKind::kUnsupported, "tensor '" + weight.name + "' of " + model.path() + " is " +
                                           std::string(model::Info(weight.type).name) +
                                           ", which this version has no kernels for");
}

CardLayout LayoutOf(const kernels::FormatTraits& format, const plugin::Weight& weight) {
  if (weight.role == BL_ROLE_TABLE) {
    return kernels::cuda::CanEmbed(format.ggml_type) ? CardLayout::kFileRows : CardLayout::kDecoded;
  }
  if (format.activation_group == 0) return CardLayout::kFileRows;
  return kernels::cuda::HasCardForm(format.ggml_type) ? CardLayout::kCardForm
                                                      : CardLayout::kDecoded;
}

uint64_t BytesAs(CardLayout layout, const kernels::FormatTraits& format,
                 const plugin::Weight& weight) {
  const auto times = [&](uint64_t a, uint64_t b) {
    return CheckedMul(a, b, ErrorKind::kNoMemory, "weight '" + weight.name + "' on the card");
  };
  const uint64_t matrices = times(weight.ne[2], weight.ne[3]);
  switch (layout) {
    case CardLayout::kCardForm:
      return times(kernels::cuda::CardBytes(format.ggml_type, weight.ne[1], weight.ne[0]),
                   matrices);
    case CardLayout::kDecoded:
      return times(times(weight.ne[0], weight.ne[1]), times(matrices, sizeof(uint16_t)));
    default:
      return weight.bytes;
  }
}

}  // namespace

CardWeightLayout::CardWeightLayout(const model::ModelFile& model,
                                   const plugin::Description& description)
    : places_(description.weights.size()) {
  using Key = std::tuple<size_t, uint64_t, uint64_t, CardLayout>;
  std::map<Key, CardPlace> seen;
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present) continue;
    const kernels::FormatTraits& format = FormatOf(model, weight);
    CardPlace place;
    place.layout = LayoutOf(format, weight);
    const auto [known, is_new] = seen.try_emplace(
        Key{weight.tensor, weight.offset, weight.bytes, place.layout}, CardPlace{});
    if (is_new) {
      place.bytes = BytesAs(place.layout, format, weight);
      place.at = bytes_;
      bytes_ = CheckedAdd(bytes_,
                          CheckedAlignUp(place.bytes, kAlignment, ErrorKind::kNoMemory, "weights"),
                          ErrorKind::kNoMemory, "weights on the card");
      if (place.layout == CardLayout::kCardForm) {
        staging_bytes_ = std::max(staging_bytes_, weight.bytes);
      }
      if (place.layout == CardLayout::kDecoded) {
        decoded_.push_back(weight.name + " (" + format.name + ") as F16");
      }
      known->second = place;
      order_.push_back(i);
    }
    places_[i] = known->second;
  }
  std::ranges::sort(order_, {}, [&](uint32_t i) {
    const plugin::Weight& weight = description.weights[i];
    const model::TensorInfo& tensor = model.tensors()[weight.tensor];
    return std::pair(tensor.file, tensor.offset + weight.offset);
  });
}

namespace {

// A stretch of a file that fits a pinned piece, and what of it goes where on the card.
struct Piece {
  const File* file = nullptr;
  uint64_t offset = 0;  // a multiple of the page
  uint64_t bytes = 0;   // to read
  uint64_t skip = 0;    // bytes at the front that belong to another tensor
  uint64_t use = 0;
  std::byte* to = nullptr;
  uint32_t weight = 0;
  uint64_t weight_offset = 0;  // of the first used byte, in the weight
  bool last = false;           // of its weight
};

void CutWeight(const model::ModelFile& model, const plugin::Weight& weight, uint32_t index,
               std::byte* to, std::vector<Piece>* pieces) {
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
    piece.to = to + (first - begin);
    piece.weight = index;
    piece.weight_offset = first - begin;
    piece.last = stop >= end;
    pieces->push_back(piece);
  }
}

// Pieces read by several threads into a ring of pinned memory, handed out in order.
class PieceReader {
 public:
  PieceReader(std::span<const Piece> pieces, int ordinal)
      : pieces_(pieces),
        ring_(kRingPieces * limits::kLoadReadBytes, "weights on their way to the card"),
        ready_(pieces.size(), 0) {
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
    changed_.wait(lock, [&] { return ready_[i] != 0 || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    return {Room(i), pieces_[i].bytes};
  }

  // Piece `i` has its copies in `stream`; its room is free when they are done.
  void Enqueued(size_t i, cudaStream_t stream) {
    CheckCuda(cudaEventRecord(copied_[i % kRingPieces].get(), stream), "loading weights");
    const std::lock_guard lock(mutex_);
    enqueued_ = i + 1;
    changed_.notify_all();
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
      if (i >= kRingPieces) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return enqueued_ + kRingPieces > i || stopped_; });
        if (stopped_) return false;
        lock.unlock();
        CheckCuda(cudaEventSynchronize(copied_[i % kRingPieces].get()), "loading weights");
      }
      const Piece& piece = pieces_[i];
      direct_.fetch_add(piece.file->ReadOnceAt(piece.offset, {Room(i), piece.bytes}),
                        std::memory_order_relaxed);
    } catch (...) {
      Stop(std::current_exception());
      return false;
    }
    const std::lock_guard lock(mutex_);
    ready_[i] = 1;
    changed_.notify_all();
    return !stopped_;
  }

  void Stop(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }

  std::span<const Piece> pieces_;
  PinnedBuffer ring_;
  std::deque<CardEvent> copied_;  // by place in the ring
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> direct_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> ready_;
  size_t enqueued_ = 0;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last: they end before what they use
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

CardWeights::CardWeights(const model::ModelFile& model, const plugin::Description& description,
                         CardWeightLayout layout, const kernels::cuda::Launch& launch,
                         const std::function<void(uint64_t, uint64_t)>& progress)
    : description_(description), layout_(std::move(layout)), memory_(layout_.bytes(), "weights") {
  const auto start = std::chrono::steady_clock::now();
  const CardBuffer staging(layout_.staging_bytes(), "weights on their way into card form");
  std::vector<Piece> pieces;
  uint64_t total = 0;
  for (const uint32_t i : layout_.order()) {
    const plugin::Weight& weight = description.weights[i];
    const CardPlace& place = layout_.place(i);
    total += weight.bytes;
    if (place.layout == CardLayout::kDecoded) continue;
    CutWeight(model, weight, i,
              place.layout == CardLayout::kCardForm ? staging.data() : memory_.data() + place.at,
              &pieces);
  }
  uint64_t done = 0;
  int ordinal = 0;
  CheckCuda(cudaGetDevice(&ordinal), "loading weights");
  PieceReader reader(pieces, ordinal);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const plugin::Weight& weight = description.weights[piece.weight];
    const std::span<const std::byte> bytes = reader.Wait(i).subspan(piece.skip, piece.use);
    memory::CheckFiniteStretch(model, weight.tensor, weight.offset + piece.weight_offset, bytes);
    CheckCuda(cudaMemcpyAsync(piece.to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                              launch.stream),
              "copying tensor '" + weight.name + "' to the card");
    reader.Enqueued(i, launch.stream);
    const CardPlace& place = layout_.place(piece.weight);
    if (piece.last && place.layout == CardLayout::kCardForm) {
      CheckCuda(kernels::cuda::ToCardForm(launch, static_cast<int>(weight.type), staging.data(),
                                          memory_.data() + place.at, weight.ne[1], weight.ne[0],
                                          weight.ne[2] * weight.ne[3]),
                "repacking tensor '" + weight.name + "'");
    }
    done += piece.use;
    if (progress && done < total) progress(done, total);
  }
  for (const uint32_t i : layout_.order()) {
    const CardPlace& place = layout_.place(i);
    if (place.layout != CardLayout::kDecoded) continue;
    UploadDecoded(model, description.weights[i], memory_.data() + place.at);
  }
  CheckCuda(cudaStreamSynchronize(launch.stream), "loading weights");
  if (progress) progress(total, total);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  report_ = {.bytes = total, .direct_bytes = reader.direct(), .seconds = time.count()};
}

uint64_t CardWeights::HostBytes() { return kRingPieces * limits::kLoadReadBytes; }

int CardWeights::Type(uint32_t weight) const {
  return layout_.place(weight).layout == CardLayout::kDecoded
             ? static_cast<int>(model::TensorType::kF16)
             : static_cast<int>(description_.weights[weight].type);
}

const std::byte* CardWeights::Data(uint32_t weight) const {
  return memory_.data() + layout_.place(weight).at;
}

kernels::cuda::CardWeight CardWeights::Matrix(uint32_t weight) const {
  const plugin::Weight& described = description_.weights[weight];
  const CardPlace& place = layout_.place(weight);
  const uint64_t experts = described.ne[2] * described.ne[3];
  kernels::cuda::CardWeight matrix;
  matrix.format = kernels::FindFormat(Type(weight));
  matrix.data = Data(weight);
  matrix.n = described.ne[1];
  matrix.k = described.ne[0];
  if (place.layout != CardLayout::kCardForm) {
    matrix.row_bytes = kernels::RowBytes(*matrix.format, matrix.k);
  }
  if (experts > 1) matrix.expert_bytes = place.bytes / experts;
  return matrix;
}

}  // namespace bloomery::exec

// The rates of each card: its memory, and the link both ways. Opens every card.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "kernels-common/cuda/read_rate.h"
#include "kernels-common/moe/cuda/round_trip.h"
#include "runtime/exec/card_loading.h"
#include "runtime/exec/cuda/card.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kReadBytes = uint64_t{2} << 30;    // far beyond any cache of a card
constexpr uint64_t kLinkBytes = uint64_t{256} << 20;  // some ms of any link
constexpr int kTimes = 5;                             // the best counts

// Bytes a second of what `enqueue` puts into the stream.
double RateOf(const CardStream& stream, uint64_t bytes, const std::function<void()>& enqueue) {
  const std::string what = "measuring a card";
  const CardEvent begin(cudaEventDefault);
  const CardEvent end(cudaEventDefault);
  double best = 0;
  for (int i = 0; i < kTimes; ++i) {
    CheckCuda(cudaEventRecord(begin.get(), stream.get()), what);
    enqueue();
    CheckCuda(cudaEventRecord(end.get(), stream.get()), what);
    CheckCuda(cudaStreamSynchronize(stream.get()), what);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), what);
    best = std::max(best, static_cast<double>(bytes) / (static_cast<double>(milliseconds) * 1e-3));
  }
  return best;
}

// Seconds of a round between a thread of the card and this one; 0 where the card heard nothing.
double MeasureHandOff(const kernels::cuda::Launch& launch) {
  using Clock = std::chrono::steady_clock;
  constexpr uint32_t kRounds = 1000;
  constexpr std::chrono::milliseconds kMost{200};
  constexpr size_t kLine = 64;
  const std::string what = "measuring how card and host answer each other";
  const PinnedBuffer page(2 * kLine, what);
  auto* asked = reinterpret_cast<uint32_t*>(page.data());
  auto* answered = reinterpret_cast<uint32_t*>(page.data() + kLine);
  *asked = 0;
  *answered = 0;
  void* seen = nullptr;
  CheckCuda(cudaHostGetDevicePointer(&seen, page.data(), 0), what);
  auto* of_card = static_cast<std::byte*>(seen);
  CheckCuda(kernels::cuda::AskHost(launch, reinterpret_cast<uint32_t*>(of_card),
                                   reinterpret_cast<uint32_t*>(of_card + kLine), kRounds,
                                   static_cast<uint64_t>(std::chrono::nanoseconds(kMost).count())),
            what);
  const Clock::time_point until = Clock::now() + kMost;
  const std::atomic_ref<uint32_t> question(*asked);
  uint32_t round = 0;
  Clock::time_point first;
  while (round < kRounds && Clock::now() < until) {
    const uint32_t heard = question.load(std::memory_order_acquire);
    if (heard == round) continue;
    if (round == 0) first = Clock::now();
    round = heard;
    std::atomic_ref(*answered).store(round, std::memory_order_release);
  }
  const std::chrono::duration<double> time = Clock::now() - first;
  CheckCuda(cudaStreamSynchronize(launch.stream), what);
  return round == kRounds ? time.count() / (kRounds - 1) : 0;
}

// Bytes a second to the card, in pieces as experts come in, while `beside` runs again and again.
double MeasureBeside(const CardStream& stream, const CardBuffer& to, const PinnedBuffer& from,
                     const std::function<void()>& beside) {
  constexpr uint64_t kPiece = uint64_t{2} << 20;
  constexpr uint64_t kPieces = 768;  // as many as a stream takes before its caller waits
  const std::string what = "measuring the link to a card while the host computes";
  const CardEvent begin(cudaEventDefault);
  const CardEvent end(cudaEventDefault);
  CheckCuda(cudaEventRecord(begin.get(), stream.get()), what);
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t at = i * kPiece % kLinkBytes;
    CheckCuda(cudaMemcpyAsync(to.data() + at, from.data() + at, kPiece, cudaMemcpyHostToDevice,
                              stream.get()),
              what);
  }
  CheckCuda(cudaEventRecord(end.get(), stream.get()), what);
  while (cudaEventQuery(end.get()) == cudaErrorNotReady) beside();
  CheckCuda(cudaStreamSynchronize(stream.get()), what);
  float milliseconds = 0;
  CheckCuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), what);
  return static_cast<double>(kPieces * kPiece) / (static_cast<double>(milliseconds) * 1e-3);
}

memory::CardRates Measure(CardInfo card, const std::function<void()>& beside) {
  UseCard(&card);
  const uint64_t free_bytes = card.free_bytes.value_or(0);
  const CardBuffer memory(std::clamp(free_bytes / 2, kLinkBytes, kReadBytes),
                          "measuring how fast it reads");
  const PinnedBuffer pinned(kLinkBytes, "measuring the link to a card");
  std::fill_n(pinned.data(), pinned.size(), std::byte{1});
  const CardStream stream;
  const kernels::cuda::Launch launch = {.stream = stream.get(),
                                        .multiprocessors = card.multiprocessors,
                                        .dependent = false,
                                        .shared_bytes_max = card.shared_bytes_max};
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return RateOf(stream, kLinkBytes, [&, to, from, kind] {
      CheckCuda(cudaMemcpyAsync(to, from, kLinkBytes, kind, stream.get()),
                "measuring the link to a card");
    });
  };
  memory::CardRates rates{.id = card.Id(), .name = card.name};
  rates.multiprocessors = card.multiprocessors;
  rates.to_card = copy(memory.data(), pinned.data(), cudaMemcpyHostToDevice);
  rates.from_card = copy(pinned.data(), memory.data(), cudaMemcpyDeviceToHost);
  if (beside) rates.to_card_beside = MeasureBeside(stream, memory, pinned, beside);
  rates.hand_off = MeasureHandOff(launch);
  rates.read = RateOf(stream, memory.size(), [&] {
    CheckCuda(kernels::cuda::ReadAll(launch, memory.data(), memory.size()),
              "measuring how fast a card reads");
  });
  return rates;
}

}  // namespace

std::vector<memory::CardRates> MeasureCards(const std::function<void()>& beside) {
  std::vector<memory::CardRates> rates;
  for (const CardInfo& card : ListCards()) rates.push_back(Measure(card, beside));
  return rates;
}

}  // namespace bloomery::exec

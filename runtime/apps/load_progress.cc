#include "runtime/apps/load_progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "runtime/memory/plan.h"

namespace bloomery::apps {
namespace {

constexpr double kBarSeconds = 0.1;   // as often as an eye follows
constexpr double kLineSeconds = 1.0;  // as often as a log is worth
constexpr uint64_t kBarWidth = 30;

struct Speed {
  double gb_per_second = 0;
  double seconds_left = 0;
};

Speed SpeedOf(uint64_t done, uint64_t total, double seconds) {
  if (seconds <= 0 || done == 0) return {};
  const double rate = static_cast<double>(done) / seconds;
  return {.gb_per_second = rate / 1e9, .seconds_left = static_cast<double>(total - done) / rate};
}

}  // namespace

LoadProgress::LoadProgress(std::ostream& out, bool terminal, Clock clock)
    : out_(out), terminal_(terminal), clock_(std::move(clock)), start_(clock_()), shown_(start_) {}

double LoadProgress::SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void LoadProgress::Show(uint64_t done, uint64_t total) {
  const double now = clock_();
  if (done < total && now - shown_ < (terminal_ ? kBarSeconds : kLineSeconds)) return;
  shown_ = now;
  if (terminal_) {
    Bar(done, total, now - start_);
  } else {
    Line(done, total, now - start_);
  }
}

void LoadProgress::Bar(uint64_t done, uint64_t total, double seconds) {
  const uint64_t filled =
      total == 0 ? kBarWidth
                 : static_cast<uint64_t>(static_cast<double>(kBarWidth) *
                                         static_cast<double>(done) / static_cast<double>(total));
  const Speed speed = SpeedOf(done, total, seconds);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f GB/s, %.0f s left", speed.gb_per_second,
                speed.seconds_left);
  out_ << "\rloading [" << std::string(filled, '#') << std::string(kBarWidth - filled, ' ') << "] "
       << memory::FormatBytes(done) << " of " << memory::FormatBytes(total) << ", " << text.data()
       << "  " << (done >= total ? "\n" : "") << std::flush;
}

void LoadProgress::Line(uint64_t done, uint64_t total, double seconds) {
  const Speed speed = SpeedOf(done, total, seconds);
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "{\"load\":{\"done_bytes\":%llu,\"total_bytes\":%llu,\"seconds\":%.2f,"
                "\"gb_per_second\":%.2f,\"seconds_left\":%.2f}}",
                static_cast<unsigned long long>(done), static_cast<unsigned long long>(total),
                seconds, speed.gb_per_second, speed.seconds_left);
  out_ << text.data() << std::endl;
}

}  // namespace bloomery::apps

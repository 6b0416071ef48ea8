// Time behind an interface, so that tests decide when it passes. Monotonic time only; wall-clock
// dates are for logs. Any thread; implementations never block.
#pragma once

#include <chrono>

namespace bloomery {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace bloomery

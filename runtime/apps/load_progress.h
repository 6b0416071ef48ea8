// How far the weights are loaded, for whoever waits: a bar with bytes, speed and the time left on
// one rewritten line of a terminal; elsewhere one JSON object a line, at most one a second and one
// at the end. Writes to a stream of the caller's; the thread that loads. Never keeps it waiting.
//
//   {"load":{"done_bytes":1073741824,"total_bytes":2147483648,"seconds":0.31,
//            "gb_per_second":3.46,"seconds_left":0.31}}
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>

namespace bloomery::apps {

class LoadProgress {
 public:
  // Seconds on a clock that only moves forward.
  using Clock = std::function<double()>;

  // The clock starts here.
  LoadProgress(std::ostream& out, bool terminal, Clock clock = SteadySeconds);

  void Show(uint64_t done, uint64_t total);

 private:
  static double SteadySeconds();
  void Bar(uint64_t done, uint64_t total, double seconds);
  void Line(uint64_t done, uint64_t total, double seconds);

  std::ostream& out_;
  bool terminal_;
  Clock clock_;
  double start_;
  double shown_;  // when a line was last written
};

}  // namespace bloomery::apps

#include "runtime/apps/tools/progress.h"

#include <unistd.h>

#include <iostream>
#include <utility>

namespace bloomery::apps {

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (percent_ >= 0) std::cerr << std::endl;
}

void Progress::Show(uint64_t done, uint64_t all) {
  const int percent =
      all == 0 ? 100
               : static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(all));
  if (!terminal_ || percent == percent_) return;
  percent_ = percent;
  std::cerr << '\r' << what_ << ' ' << percent << " %" << std::flush;
}

}  // namespace bloomery::apps

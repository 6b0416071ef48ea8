// "quantise 45 %" on one line of a terminal's stderr, rewritten; silent where stderr is a file.
// One thread.
#pragma once

#include <cstdint>
#include <string>

namespace bloomery::apps {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(uint64_t done, uint64_t all);

 private:
  std::string what_;
  bool terminal_;
  int percent_ = -1;
};

}  // namespace bloomery::apps

// Finds stop strings in text that arrives in pieces, and never lets a byte of one out. What it
// decides depends on the text alone, not on where the pieces were cut: the match is the stop string
// that is complete first; of two complete at the same byte, the longer. Text that may still become
// a stop string is held back. One object a sequence, one thread at a time; owns copies of the
// strings.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::text {

class StopMatcher {
 public:
  StopMatcher() = default;  // no stop strings: releases everything at once

  // Empty strings are dropped, equal ones count once. Throws Error(kBadRequest, "Field 'stop': …")
  // above limits::kStopStringsMax strings or limits::kStopStringBytesMax bytes in one.
  explicit StopMatcher(std::span<const std::string> words);

  // Adds a piece; returns the text that is now free to go, "" once a stop string was found. The
  // view is valid until the next call.
  std::string_view Next(std::string_view piece);

  // The sequence ended without a stop string: returns what was held back.
  std::string_view Finish();

  // The stop string found, if any; its text and what follows it are never released.
  std::optional<std::string_view> found() const;

  // Bytes held back because they are the beginning of a stop string.
  size_t held_bytes() const { return held_.size(); }

 private:
  // One string with its Knuth-Morris-Pratt borders; `matched` bytes of it end at the text's end.
  struct Word {
    std::string text;
    std::vector<size_t> border;
    size_t matched = 0;
  };

  std::vector<Word> words_;
  std::string held_;
  std::string released_;
  std::optional<size_t> found_;
};

}  // namespace bloomery::text

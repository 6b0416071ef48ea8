#include "runtime/text/stop_matcher.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::text {
namespace {

// border[n]: length of the longest proper prefix of the first n bytes that is also their suffix.
std::vector<size_t> Borders(std::string_view word) {
  std::vector<size_t> border(word.size() + 1, 0);
  size_t length = 0;
  for (size_t i = 1; i < word.size(); ++i) {
    while (length > 0 && word[i] != word[length]) length = border[length];
    if (word[i] == word[length]) ++length;
    border[i + 1] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> words) {
  if (words.size() > limits::kStopStringsMax) {
    throw Error(ErrorKind::kBadRequest, "Field 'stop': " + std::to_string(words.size()) +
                                            " strings, at most " +
                                            std::to_string(limits::kStopStringsMax) + " are taken");
  }
  for (const std::string& word : words) {
    if (word.size() > limits::kStopStringBytesMax) {
      throw Error(ErrorKind::kBadRequest,
                  "Field 'stop': a string of " + std::to_string(word.size()) + " bytes, at most " +
                      std::to_string(limits::kStopStringBytesMax) + " are taken");
    }
    const auto same = [&word](const Word& other) { return other.text == word; };
    if (word.empty() || std::any_of(words_.begin(), words_.end(), same)) continue;
    words_.push_back({word, Borders(word), 0});
  }
}

std::string_view StopMatcher::Next(std::string_view piece) {
  released_.clear();
  if (found_) return released_;
  if (words_.empty()) return released_ = piece;
  for (const char byte : piece) {
    held_ += byte;
    size_t keep = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      Word& word = words_[w];
      while (word.matched > 0 && word.text[word.matched] != byte) {
        word.matched = word.border[word.matched];
      }
      if (word.text[word.matched] == byte) ++word.matched;
      keep = std::max(keep, word.matched);
      const bool whole = word.matched == word.text.size();
      if (whole && (!found_ || word.text.size() > words_[*found_].text.size())) found_ = w;
    }
    if (found_) {
      // The word is the end of what is held: another word may hold more before it.
      released_.append(held_, 0, held_.size() - words_[*found_].text.size());
      held_.clear();
      return released_;
    }
    released_.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return released_;
}

std::string_view StopMatcher::Finish() {
  released_ = std::move(held_);
  held_.clear();
  for (Word& word : words_) word.matched = 0;
  return released_;
}

std::optional<std::string_view> StopMatcher::found() const {
  if (!found_) return std::nullopt;
  return words_[*found_].text;
}

}  // namespace bloomery::text

#include "runtime/text/detokenizer.h"

#include "runtime/base/utf8.h"

namespace bloomery::text {

std::string_view Detokenizer::Next(std::string_view bytes) {
  tail_ += bytes;
  const size_t held = Utf8IncompleteTail(tail_);
  released_ = ReplaceInvalidUtf8(std::string_view(tail_).substr(0, tail_.size() - held));
  tail_.erase(0, tail_.size() - held);
  return released_;
}

std::string_view Detokenizer::Finish() {
  released_ = ReplaceInvalidUtf8(tail_);
  tail_.clear();
  return released_;
}

}  // namespace bloomery::text

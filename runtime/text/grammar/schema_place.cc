#include "runtime/text/grammar/schema_place.h"

#include "runtime/base/json.h"

namespace bloomery::text {
namespace {

class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) { SkipBlanks(); }

  size_t at() const { return at_; }

  // Into the member or element of that name; false where there is none.
  bool Enter(const std::string& name) {
    const bool object = Peek() == '{';
    if (!object && Peek() != '[') return false;
    const size_t begin = at_;
    ++at_;
    for (size_t index = 0;; ++index) {
      SkipBlanks();
      if (Peek() == '}' || Peek() == ']' || at_ >= text_.size()) break;
      bool found = !object && std::to_string(index) == name;
      if (object) {
        const size_t key = at_;
        SkipValue();
        found = ParseJson(text_.substr(key, at_ - key), "a name").GetString() == name;
        SkipBlanks();
        ++at_;  // the colon
        SkipBlanks();
      }
      if (found) return true;
      SkipValue();
      SkipBlanks();
      if (Peek() == ',') ++at_;
    }
    at_ = begin;
    return false;
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void SkipBlanks() {
    while (Peek() == ' ' || Peek() == '\n' || Peek() == '\t' || Peek() == '\r') ++at_;
  }

  // Brackets and braces are counted; those in strings do not count.
  void SkipValue() {
    int depth = 0;
    bool in_string = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (in_string) {
        if (c == '\\') {
          ++at_;
        } else if (c == '"') {
          in_string = false;
          if (depth == 0) {
            ++at_;
            return;
          }
        }
        continue;
      }
      const bool ends = c == ',' || c == ':' || c == '}' || c == ']';
      if (depth == 0 && (ends || c == ' ' || c == '\n' || c == '\t' || c == '\r')) return;
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') {
        if (--depth == 0) {
          ++at_;
          return;
        }
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

SourcePlace PlaceInJson(std::string_view text, std::span<const std::string> path) {
  Walker walker(text);
  for (const std::string& name : path) {
    if (!walker.Enter(name)) break;
  }
  return PlaceOf(text, walker.at());
}

}  // namespace bloomery::text

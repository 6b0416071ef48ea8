// Checks one JSON value byte by byte, while it streams: says where it ends and where it stops being
// JSON. Keeps nothing of the value. One object a value; plain state, no locks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bloomery::chat {

class JsonScan {
 public:
  enum class Result {
    kMore,        // the byte belongs to the value, which goes on
    kDone,        // the byte is the value's last
    kDoneBefore,  // the value (a number) ended before the byte
    kBad,         // no JSON value begins like this
  };
  Result Feed(char byte);

 private:
  enum class State {
    kValue,      // a value must come
    kFirstItem,  // a value or ]
    kFirstKey,   // a key or }
    kKey,        // a key
    kColon,      // :
    kAfter,      // , or the closing bracket
    kString,     // inside one
    kEscape,     // behind its backslash
    kUnicode,    // the four digits of \u
    kNumber,     // inside one
    kWord,       // inside true, false, null
  };
  Result Begin(char byte);
  Result EndValue();
  Result FeedString(char byte);
  Result FeedUnicode(char byte);
  Result FeedNumber(char byte);
  bool Open(char closer);

  // Where a number is: its last part decides what may come next.
  enum class Number { kMinus, kZero, kInteger, kPoint, kFraction, kE, kESign, kExponent };

  State state_ = State::kValue;
  std::string closers_;  // what closes each open object and array, outermost first
  bool in_key_ = false;
  bool high_surrogate_ = false;  // \uD800–\uDBFF was read; a low one must follow
  int digits_ = 0;               // of \u, still to come
  uint32_t unit_ = 0;
  std::string_view word_;  // what of true, false, null must still come
  Number number_ = Number::kMinus;
};

}  // namespace bloomery::chat

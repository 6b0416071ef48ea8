#include "runtime/text/chat/json_scan.h"

#include "runtime/base/limits.h"

namespace bloomery::chat {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool JsonScan::Open(char closer) {
  closers_ += closer;
  return closers_.size() <= static_cast<size_t>(limits::kJsonDepthMax);
}

JsonScan::Result JsonScan::EndValue() {
  state_ = State::kAfter;
  return closers_.empty() ? Result::kDone : Result::kMore;
}

JsonScan::Result JsonScan::Begin(char c) {
  if (c == '{' || c == '[') {
    state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
    return Open(c == '{' ? '}' : ']') ? Result::kMore : Result::kBad;
  }
  if (c == '"') {
    state_ = State::kString;
    in_key_ = false;
    return Result::kMore;
  }
  if (c == '-' || IsDigit(c)) {
    state_ = State::kNumber;
    number_ = c == '-' ? Number::kMinus : c == '0' ? Number::kZero : Number::kInteger;
    return Result::kMore;
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (c == word.front()) {
      word_ = word.substr(1);
      state_ = State::kWord;
      return Result::kMore;
    }
  }
  return Result::kBad;
}

JsonScan::Result JsonScan::FeedUnicode(char c) {
  const int digit = HexDigit(c);
  if (digit < 0) return Result::kBad;
  unit_ = unit_ * 16 + static_cast<uint32_t>(digit);
  if (--digits_ > 0) return Result::kMore;
  state_ = State::kString;
  const bool low = unit_ >= 0xDC00 && unit_ <= 0xDFFF;
  if (low != high_surrogate_) return Result::kBad;
  high_surrogate_ = unit_ >= 0xD800 && unit_ <= 0xDBFF;
  return Result::kMore;
}

JsonScan::Result JsonScan::FeedString(char c) {
  if (state_ == State::kUnicode) return FeedUnicode(c);
  if (state_ == State::kEscape) {
    if (c == 'u') {
      state_ = State::kUnicode;
      digits_ = 4;
      unit_ = 0;
      return Result::kMore;
    }
    state_ = State::kString;
    const bool known = std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    return known && !high_surrogate_ ? Result::kMore : Result::kBad;
  }
  if (c == '\\') {
    state_ = State::kEscape;
    return Result::kMore;
  }
  if (high_surrogate_ || static_cast<unsigned char>(c) < 0x20) return Result::kBad;
  if (c != '"') return Result::kMore;
  if (!in_key_) return EndValue();
  state_ = State::kColon;
  return Result::kMore;
}

JsonScan::Result JsonScan::FeedNumber(char c) {
  const bool digit = IsDigit(c);
  const bool e = c == 'e' || c == 'E';
  const auto go = [&](Number next) {
    number_ = next;
    return Result::kMore;
  };
  switch (number_) {
    case Number::kMinus:
      return digit ? go(c == '0' ? Number::kZero : Number::kInteger) : Result::kBad;
    case Number::kPoint:
      return digit ? go(Number::kFraction) : Result::kBad;
    case Number::kE:
      if (c == '+' || c == '-') return go(Number::kESign);
      return digit ? go(Number::kExponent) : Result::kBad;
    case Number::kESign:
      return digit ? go(Number::kExponent) : Result::kBad;
    case Number::kZero:
      if (digit) return Result::kBad;
      [[fallthrough]];
    case Number::kInteger:
      if (c == '.') return go(Number::kPoint);
      [[fallthrough]];
    case Number::kFraction:
      if (e) return go(Number::kE);
      [[fallthrough]];
    case Number::kExponent:
      break;
  }
  if (digit) return Result::kMore;
  if (EndValue() == Result::kDone) return Result::kDoneBefore;
  return Feed(c);
}

JsonScan::Result JsonScan::Feed(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kUnicode:
      return FeedString(c);
    case State::kNumber:
      return FeedNumber(c);
    case State::kWord:
      if (c != word_.front()) return Result::kBad;
      word_.remove_prefix(1);
      return word_.empty() ? EndValue() : Result::kMore;
    default:
      break;
  }
  if (IsSpace(c)) return Result::kMore;
  switch (state_) {
    case State::kFirstItem:
      if (c == ']') break;
      [[fallthrough]];
    case State::kValue:
      return Begin(c);
    case State::kFirstKey:
      if (c == '}') break;
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Result::kBad;
      state_ = State::kString;
      in_key_ = true;
      return Result::kMore;
    case State::kColon:
      if (c != ':') return Result::kBad;
      state_ = State::kValue;
      return Result::kMore;
    default:  // kAfter
      if (c == ',' && !closers_.empty()) {
        state_ = closers_.back() == '}' ? State::kKey : State::kValue;
        return Result::kMore;
      }
      if (closers_.empty() || c != closers_.back()) return Result::kBad;
      break;
  }
  closers_.pop_back();
  return EndValue();
}

}  // namespace bloomery::chat

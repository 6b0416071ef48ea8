#include "runtime/base/utf8.h"

#include "runtime/base/terminal.h"

#include <cstdint>

namespace bloomery {
namespace {

constexpr char32_t kCodePointMax = 0x10FFFF;

bool IsSurrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// What a lead byte allows: the character's length, and the range of its second byte (the Unicode
// standard's table of well-formed sequences; the narrowed ranges exclude overlong forms,
// surrogates and values above U+10FFFF). Length 0: not a lead byte.
struct Lead {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte <= 0x7F) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many bytes at the front belong to one well-formed character or a prefix of one.
size_t MatchedLength(std::string_view bytes, const Lead& lead) {
  size_t n = 1;
  while (n < lead.length && n < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[n]);
    const uint8_t low = n == 1 ? lead.second_min : 0x80;
    const uint8_t high = n == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) break;
    ++n;
  }
  return n;
}

}  // namespace

Utf8Character DecodeUtf8(std::string_view bytes) {
  if (bytes.empty()) return {kReplacementCharacter, 0, false};
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first <= 0x7F) return {first, 1, true};
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {kReplacementCharacter, 1, false};
  const size_t matched = MatchedLength(bytes, lead);
  if (matched < lead.length) return {kReplacementCharacter, matched, false};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(bytes[i]) & 0x3Fu);
  }
  return {code_point, lead.length, true};
}

bool IsValidUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Character c = DecodeUtf8(bytes);
    if (!c.valid) return false;
    bytes.remove_prefix(c.length);
  }
  return true;
}

size_t Utf8IncompleteTail(std::string_view bytes) {
  // The lead of an unfinished character is among the last three bytes.
  for (size_t n = 1; n <= 3 && n <= bytes.size(); ++n) {
    const std::string_view tail = bytes.substr(bytes.size() - n);
    const Lead lead = LeadOf(static_cast<uint8_t>(tail[0]));
    if (lead.length > n && MatchedLength(tail, lead) == n) return n;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Character c = DecodeUtf8(bytes);
    if (c.valid) {
      out.append(bytes.substr(0, c.length));
    } else {
      AppendUtf8(kReplacementCharacter, out);
    }
    bytes.remove_prefix(c.length);
  }
  return out;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  if (code_point > kCodePointMax || IsSurrogate(code_point)) code_point = kReplacementCharacter;
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

namespace {

// As \xNN where it is a control character.
void AppendShown(char32_t c, std::string& out) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) {
    out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
  } else {
    AppendUtf8(c, out);
  }
}

}  // namespace

std::string ForTerminal(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Utf8Character c = DecodeUtf8(bytes);
    if (c.code_point == U'\n' || c.code_point == U'\t') {
      out += static_cast<char>(c.code_point);
    } else {
      AppendShown(c.code_point, out);
    }
    bytes.remove_prefix(c.length);
  }
  return out;
}

std::string Printable(std::string_view bytes, size_t bytes_max) {
  std::string out;
  while (!bytes.empty()) {
    if (out.size() >= bytes_max) return out + "…";
    const Utf8Character c = DecodeUtf8(bytes);
    AppendShown(c.code_point, out);
    bytes.remove_prefix(c.length);
  }
  return out;
}

}  // namespace bloomery

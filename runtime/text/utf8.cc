#include "runtime/text/utf8.h"

namespace bloomery::text {
namespace {

// What a lead byte announces: the character's length and the range its second byte must lie in
// (narrower than 80..BF where overlong forms, surrogates or values above U+10FFFF would begin).
struct Lead {
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead ReadLead(unsigned char byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {.length = 2};
  if (byte < 0xF0) {
    return {.length = 3,
            .low = static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            .high = static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  return {.length = 4,
          .low = static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
          .high = static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

Utf8Head ReadUtf8Head(std::string_view text) {
  const Lead lead = ReadLead(static_cast<unsigned char>(text[0]));
  if (lead.length == 0) return {Utf8Head::kBroken, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Head::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Head::kBroken, i};
  }
  return {Utf8Head::kCharacter, lead.length};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Head head = ReadUtf8Head(text.substr(at));
    if (head.kind != Utf8Head::kCharacter) break;
    at += head.length;
  }
  return at;
}

bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacementCharacter;
    text.remove_prefix(ReadUtf8Head(text).length);
  }
  return out;
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code_point < 0x80) {
    out += byte(code_point);
  } else if (code_point < 0x800) {
    out += byte(0xC0 | code_point >> 6);
    out += byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += byte(0xE0 | code_point >> 12);
    out += byte(0x80 | (code_point >> 6 & 0x3F));
    out += byte(0x80 | (code_point & 0x3F));
  } else {
    out += byte(0xF0 | code_point >> 18);
    out += byte(0x80 | (code_point >> 12 & 0x3F));
    out += byte(0x80 | (code_point >> 6 & 0x3F));
    out += byte(0x80 | (code_point & 0x3F));
  }
}

}  // namespace bloomery::text

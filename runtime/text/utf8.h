// UTF-8 by the byte: how long the character at a place is, where the valid stretches of a text end,
// and text with its broken parts replaced. Owns nothing, allocates only what it returns, never
// throws for any input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bloomery::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the first byte of a text.
struct Utf8Head {
  enum Kind {
    kCharacter,   // a whole, well-formed character of `length` bytes
    kIncomplete,  // the text ends after `length` bytes that could still become a character
    kBroken,      // `length` bytes that no continuation can make well-formed
  };
  Kind kind;
  size_t length;  // 1..4
};

// Classifies the head of `text`, which must not be empty. Overlong forms, surrogates and values above
// U+10FFFF are broken. The length of a broken head is its maximal subpart (Unicode 15, section 3.9),
// so one replacement character stands for what one interrupted character was.
Utf8Head ReadUtf8Head(std::string_view text);

// Length in bytes of the longest well-formed prefix of `text`.
size_t ValidUtf8Prefix(std::string_view text);

bool IsValidUtf8(std::string_view text);

// `text` with each broken or cut-off sequence replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// Appends the UTF-8 form of a code point, which must be a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string& out);

}  // namespace bloomery::text

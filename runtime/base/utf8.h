// UTF-8 as the Unicode standard defines it: no surrogates, no overlong forms, nothing above
// U+10FFFF. Pure functions over bytes that may be anything; they never throw on content.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bloomery {

inline constexpr char32_t kReplacementCharacter = U'\uFFFD';

// The first code point of a byte string. When the bytes are not valid, `valid` is false, the code
// point is U+FFFD, and `length` is the part to skip as one unit: the longest prefix that could
// begin a character, at least one byte. Length 0 only for empty input.
struct Utf8Character {
  char32_t code_point;
  size_t length;
  bool valid;
};
Utf8Character DecodeUtf8(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);

// How many bytes at the end (0 to 3) begin a character that further bytes could complete. A
// stream holds those back: Utf8IncompleteTail("a\xE2\x82") is 2.
size_t Utf8IncompleteTail(std::string_view bytes);

// The text with each ill-formed part (as DecodeUtf8 measures it) replaced by one U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view bytes);

// Appends the 1 to 4 bytes of a code point; a surrogate or a value above U+10FFFF gives U+FFFD.
void AppendUtf8(char32_t code_point, std::string& out);

// Bytes from outside, made fit for one line of a message: invalid UTF-8 replaced, control
// characters as \xNN, and at most about `bytes_max` bytes, cut at a character with "…" appended.
std::string Printable(std::string_view bytes, size_t bytes_max = 80);

}  // namespace bloomery

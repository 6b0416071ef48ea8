// Code points: decoding UTF-8 and the classes and case mappings of Python's str. Pure functions
// over constant tables (unicode_tables.inc); nothing here fails or allocates.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace bloomery::jinja {

inline constexpr char32_t kReplacement = 0xFFFD;

// Decodes the code point at `pos` and moves `pos` behind it. A byte that starts no valid sequence
// reads as U+FFFD and takes one byte. Needs pos < text.size().
char32_t DecodePoint(std::string_view text, size_t& pos);
void AppendPoint(std::string& out,
                 char32_t point);  // surrogates and values past U+10FFFF become U+FFFD
bool IsAscii(std::string_view text);
size_t CountPoints(std::string_view valid_utf8);
// Where the code point at or before `pos - 1` starts. Needs pos > 0 and valid UTF-8.
size_t PreviousPoint(std::string_view valid_utf8, size_t pos);
// `text` itself when valid, else with U+FFFD for what is not.
std::string ValidUtf8(std::string_view text);

bool IsSpace(char32_t point);
bool IsAlpha(char32_t point);
bool IsDigit(char32_t point);
bool IsDecimal(char32_t point);
bool IsNumeric(char32_t point);
bool IsPrintable(char32_t point);
bool IsUpper(char32_t point);
bool IsLower(char32_t point);
bool IsCased(char32_t point);

// Up to three code points; unused places are 0.
using CaseMapping = std::array<char32_t, 3>;
CaseMapping ToUpper(char32_t point);
CaseMapping ToLower(char32_t point);
CaseMapping ToTitle(char32_t point);

}  // namespace bloomery::jinja

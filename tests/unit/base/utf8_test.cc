#include "runtime/base/utf8.h"
#include "runtime/base/terminal.h"

#include <gtest/gtest.h>

#include <string>

namespace bloomery {
namespace {

// Encodes by arithmetic on the definition, independent of the code under test.
std::string Encode(char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(value); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 + c / 64), byte(0x80 + c % 64)};
  if (c < 0x10000) return {byte(0xE0 + c / 4096), byte(0x80 + c / 64 % 64), byte(0x80 + c % 64)};
  return {byte(0xF0 + c / 262144), byte(0x80 + c / 4096 % 64), byte(0x80 + c / 64 % 64),
          byte(0x80 + c % 64)};
}

TEST(Utf8, EveryCodePointDecodesAndEncodes) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const std::string bytes = Encode(c);
    const Utf8Character decoded = DecodeUtf8(bytes + "x");
    std::string appended;
    AppendUtf8(c, appended);
    if (c >= 0xD800 && c <= 0xDFFF) {
      ASSERT_FALSE(decoded.valid) << std::hex << static_cast<uint32_t>(c);
      ASSERT_EQ(appended, "\xEF\xBF\xBD");
    } else {
      ASSERT_TRUE(decoded.valid && decoded.code_point == c && decoded.length == bytes.size())
          << std::hex << static_cast<uint32_t>(c);
      ASSERT_EQ(appended, bytes);
    }
  }
  std::string past;
  AppendUtf8(0x110000, past);
  EXPECT_EQ(past, "\xEF\xBF\xBD");
}

TEST(Utf8, OverlongFormsAndValuesPastTheLastAreInvalid) {
  for (const std::string bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                  "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
    EXPECT_FALSE(DecodeUtf8(bytes).valid);
    EXPECT_FALSE(IsValidUtf8("a" + bytes));
  }
  EXPECT_TRUE(IsValidUtf8("a\xC3\xA9\xF4\x8F\xBF\xBF"));
  EXPECT_TRUE(IsValidUtf8(""));
}

// The example of the Unicode standard (table 3-8): one replacement for each maximal part.
TEST(Utf8, ReplacementFollowsTheStandardsExample) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), r + r + r);  // a surrogate: three bytes, three
  EXPECT_EQ(ReplaceInvalidUtf8("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
}

TEST(Utf8, IncompleteTailCountsOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(Utf8IncompleteTail("abc"), 0u);
  EXPECT_EQ(Utf8IncompleteTail(""), 0u);
  EXPECT_EQ(Utf8IncompleteTail("a\xC3"), 1u);
  EXPECT_EQ(Utf8IncompleteTail("a\xE2\x82"), 2u);
  EXPECT_EQ(Utf8IncompleteTail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(Utf8IncompleteTail("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(Utf8IncompleteTail("a\xED\xA0"), 0u);  // a surrogate's front: never valid
  EXPECT_EQ(Utf8IncompleteTail("a\xF4\x90"), 0u);  // past U+10FFFF
  EXPECT_EQ(Utf8IncompleteTail("a\x80\x80"), 0u);  // no lead
  EXPECT_EQ(Utf8IncompleteTail("\xC3\xA9\x80"), 0u);
}

TEST(Utf8, ATerminalGetsLinesAndTabsAndNoSequencesOfItsOwn) {
  EXPECT_EQ(ForTerminal("a\tb\nc ü"), "a\tb\nc ü");
  EXPECT_EQ(ForTerminal("\x1b[31mred\r\x07\x7F"), "\\x1B[31mred\\x0D\\x07\\x7F");
  EXPECT_EQ(ForTerminal("\xC2\x9B"  // CSI as one character
                        "2J"),
            "\\x9B2J");
  EXPECT_EQ(ForTerminal("\x9B"), "\xEF\xBF\xBD");  // as one byte: no UTF-8
}

TEST(Utf8, PrintableFitsOneLineAndALength) {
  EXPECT_EQ(Printable("a\nb\x7F\xff"), "a\\x0Ab\\x7F\xEF\xBF\xBD");
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abcdef…");
  EXPECT_EQ(Printable("\xC2\x9B"), "\\x9B");
  EXPECT_EQ(Printable(""), "");
}

}  // namespace
}  // namespace bloomery

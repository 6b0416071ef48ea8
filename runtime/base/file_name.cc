#include "runtime/base/file_name.h"

#include <algorithm>
#include <array>

#include "runtime/base/output_file.h"
#include "runtime/base/utf8.h"

namespace bloomery {
namespace {

constexpr size_t kNameBytesMax = 255;  // what file systems take
constexpr std::string_view kForbidden = "/\\:*?\"<>|";
// Characters that look like a dot or a separator, that are not seen, or that stand for lost bytes.
constexpr std::array<char32_t, 11> kLookAlikes = {U'\u2044',
                                                  U'\u2215',
                                                  U'\u2216',
                                                  U'\u29F5',
                                                  U'\u29F8',
                                                  U'\u29F9',
                                                  U'\uFF0E',
                                                  U'\uFF0F',
                                                  U'\uFF3C',
                                                  U'\uFEFF',
                                                  kReplacementCharacter};

bool IsPlainCharacter(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
  // Marks that turn the direction of what is shown, or are not shown.
  const bool turns = (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
                     (c >= 0x2060 && c <= 0x206F) || c == 0x061C || c == 0x00AD;
  return !control && !turns && std::ranges::find(kLookAlikes, c) == kLookAlikes.end();
}

}  // namespace

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || !IsValidUtf8(name)) return false;
  if (name.find_first_of(kForbidden) != std::string_view::npos) return false;
  if (name.find("..") != std::string_view::npos) return false;
  if (name.front() == ' ' || name.back() == ' ' || name.back() == '.') return false;
  if (name.starts_with(OutputFile::kPartialPrefix)) return false;
  for (std::string_view rest = name; !rest.empty();) {
    const Utf8Character c = DecodeUtf8(rest);
    if (!IsPlainCharacter(c.code_point)) return false;
    rest.remove_prefix(c.length);
  }
  return true;
}

}  // namespace bloomery

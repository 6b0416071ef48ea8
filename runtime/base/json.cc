#include "runtime/base/json.h"

#include <rapidjson/encodedstream.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <system_error>
#include <vector>

#include "runtime/base/utf8.h"

namespace bloomery {
namespace internal {

void ThrowJsonMisuse(const char* condition) {
  throw Error(ErrorKind::kInternal, std::string("wrong use of a JSON value: not ") + condition);
}

}  // namespace internal

namespace {

// Numbers come as their text: what the library makes of a zero with an exponent is undefined.
constexpr unsigned kParseFlags = rapidjson::kParseIterativeFlag |
                                 rapidjson::kParseNumbersAsStringsFlag |
                                 rapidjson::kParseValidateEncodingFlag;

// The power of ten above the first digit of a number's text that is not 0, about: what tells a
// number that is too large from one that is too small.
int64_t MagnitudeOf(std::string_view text) {
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  std::string_view digits = text.substr(0, mark);
  if (digits.starts_with('-')) digits.remove_prefix(1);
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<int64_t>(std::min(digits.find_first_not_of("0."), digits.size()));
  std::string_view exponent = text.substr(std::min(mark + 1, text.size()));
  const bool negative = exponent.starts_with('-');
  if (negative || exponent.starts_with('+')) exponent.remove_prefix(1);
  int64_t power = 0;
  for (const char digit : exponent)
    power = std::min<int64_t>(power * 10 + (digit - '0'), INT32_MAX);
  return point - first + (negative ? -power : power);
}

// Passes a number's text on as what it is. False: no double is as large.
bool PassNumber(std::string_view text, rapidjson::Document& document) {
  const auto whole = [&](auto& value) {
    const auto [last, error] = std::from_chars(text.begin(), text.end(), value);
    return error == std::errc() && last == text.end();
  };
  if (text.find_first_of(".eE") == std::string_view::npos) {
    int64_t integer = 0;
    if (whole(integer)) return document.Int64(integer);
    uint64_t large = 0;
    if (whole(large)) return document.Uint64(large);
  }
  double real = 0.0;
  if (whole(real)) return document.Double(real);
  if (MagnitudeOf(text) > 0) return false;
  return document.Double(text.starts_with('-') ? -0.0 : 0.0);
}

// Passes parse events on to the document until arrays and objects nest too deep, there are too many
// values, or a text is none: the reader lets half of a surrogate pair pass when it is the low one.
class Guard {
 public:
  using Ch = char;
  using Size = rapidjson::SizeType;

  Guard(rapidjson::Document& document, const JsonOptions& options)
      : document_(document), depth_max_(options.depth_max), nodes_left_(options.nodes_max) {}

  bool too_deep() const { return too_deep_; }
  bool too_many() const { return too_many_; }
  bool bad_text() const { return bad_text_; }
  bool too_large() const { return too_large_; }

  bool Null() { return Count() && document_.Null(); }
  bool Bool(bool value) { return Count() && document_.Bool(value); }
  bool RawNumber(const Ch* text, Size length, bool) {
    if (!Count()) return false;
    too_large_ = !PassNumber({text, length}, document_);
    return !too_large_;
  }
  // Not called: numbers come as text.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }
  bool String(const Ch* text, Size length, bool copy) {
    return Count() && IsText(text, length) && document_.String(text, length, copy);
  }
  bool Key(const Ch* text, Size length, bool copy) {
    return Count() && IsText(text, length) && document_.Key(text, length, copy);
  }
  bool StartObject() { return Enter() && document_.StartObject(); }
  bool EndObject(Size members) { return Leave() && document_.EndObject(members); }
  bool StartArray() { return Enter() && document_.StartArray(); }
  bool EndArray(Size elements) { return Leave() && document_.EndArray(elements); }

 private:
  bool Count() {
    too_many_ = nodes_left_ == 0;
    if (!too_many_) --nodes_left_;
    return !too_many_;
  }
  bool Enter() {
    if (!Count()) return false;
    too_deep_ = depth_ == depth_max_;
    ++depth_;
    return !too_deep_;
  }
  bool Leave() {
    --depth_;
    return true;
  }
  bool IsText(const Ch* text, Size length) {
    bad_text_ = !IsValidUtf8({text, length});
    return !bad_text_;
  }

  rapidjson::Document& document_;
  int depth_max_;
  int depth_ = 0;
  size_t nodes_left_;
  bool too_deep_ = false;
  bool too_many_ = false;
  bool bad_text_ = false;
  bool too_large_ = false;
};

// Gives the first member of each name the value of the last one and drops the others. Sorting finds
// them: the time of a hash table could be chosen by who sends the names.
void KeepLastOfRepeatedHere(rapidjson::Value& object) {
  const auto first = object.MemberBegin();
  const auto count = object.MemberCount();
  if (count < 2) return;
  const auto name_of = [&](rapidjson::SizeType i) {
    return std::string_view(first[i].name.GetString(), first[i].name.GetStringLength());
  };
  std::vector<rapidjson::SizeType> order(count);
  std::iota(order.begin(), order.end(), rapidjson::SizeType{0});
  std::sort(order.begin(), order.end(), [&](rapidjson::SizeType a, rapidjson::SizeType b) {
    const int names = name_of(a).compare(name_of(b));
    return names != 0 ? names < 0 : a < b;
  });
  std::vector<bool> dropped(count);
  bool any = false;
  for (size_t i = 1, keep = 0; i < order.size(); ++i) {
    if (name_of(order[i]) != name_of(order[keep])) {
      keep = i;
      continue;
    }
    first[order[keep]].value = first[order[i]].value;  // moves
    dropped[order[i]] = any = true;
  }
  if (!any) return;
  auto out = first;
  for (rapidjson::SizeType i = 0; i < count; ++i) {
    if (dropped[i]) continue;
    if (out != first + static_cast<std::ptrdiff_t>(i)) {
      out->name = first[i].name;
      out->value = first[i].value;
    }
    ++out;
  }
  object.EraseMember(out, object.MemberEnd());
}

// Without recursion: how deep a value is, is the caller's to say.
void KeepLastOfRepeated(rapidjson::Value& root) {
  std::vector<rapidjson::Value*> pending{&root};
  const auto add = [&](rapidjson::Value& value) {
    if (value.IsArray() || value.IsObject()) pending.push_back(&value);
  };
  while (!pending.empty()) {
    rapidjson::Value& value = *pending.back();
    pending.pop_back();
    if (value.IsArray()) {
      for (auto& item : value.GetArray()) add(item);
    } else if (value.IsObject()) {
      KeepLastOfRepeatedHere(value);  // moves members, so before any of them is pending
      for (auto& member : value.GetObject()) add(member.value);
    }
  }
}

std::string Place(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return "byte " + std::to_string(offset) + " (line " + std::to_string(line) + ", column " +
         std::to_string(column) + ")";
}

using Writer = rapidjson::Writer<rapidjson::StringBuffer>;

// Passes a value's events to a Writer, made safe for any content.
class SafeWriter {
 public:
  using Ch = char;
  using Size = rapidjson::SizeType;

  explicit SafeWriter(Writer& writer) : writer_(writer) {}

  bool Null() { return writer_.Null(); }
  bool Bool(bool value) { return writer_.Bool(value); }
  bool Int(int value) { return writer_.Int(value); }
  bool Uint(unsigned value) { return writer_.Uint(value); }
  bool Int64(int64_t value) { return writer_.Int64(value); }
  bool Uint64(uint64_t value) { return writer_.Uint64(value); }
  bool Double(double value) {
    return std::isfinite(value) ? writer_.Double(value) : writer_.Null();
  }
  bool RawNumber(const Ch* text, Size length, bool copy) {
    return writer_.RawNumber(text, length, copy);
  }
  bool String(const Ch* text, Size length, bool) { return Text({text, length}); }
  bool Key(const Ch* text, Size length, bool) { return Text({text, length}); }
  bool StartObject() { return writer_.StartObject(); }
  bool EndObject(Size members) { return writer_.EndObject(members); }
  bool StartArray() { return writer_.StartArray(); }
  bool EndArray(Size elements) { return writer_.EndArray(elements); }

 private:
  bool Text(std::string_view text) {
    if (IsValidUtf8(text)) return writer_.String(text.data(), static_cast<Size>(text.size()));
    const std::string repaired = ReplaceInvalidUtf8(text);
    return writer_.String(repaired.data(), static_cast<Size>(repaired.size()));
  }

  Writer& writer_;
};

}  // namespace

rapidjson::Document ParseJson(std::string_view text, std::string_view what,
                              const JsonOptions& options) {
  const auto refuse = [&](size_t offset, const std::string& reason) {
    throw Error(options.kind,
                std::string(what) + ": invalid JSON at " + Place(text, offset) + ": " + reason);
  };
  if (text.size() > options.bytes_max) {
    throw Error(options.kind, std::string(what) + ": " + std::to_string(text.size()) +
                                  " bytes of JSON, the limit is " +
                                  std::to_string(options.bytes_max));
  }
  rapidjson::MemoryStream memory(text.data(), text.size());
  rapidjson::EncodedInputStream<rapidjson::UTF8<>, rapidjson::MemoryStream> stream(memory);
  rapidjson::Reader reader;
  rapidjson::ParseResult result;
  bool too_deep = false;
  bool too_many = false;
  bool bad_text = false;
  bool too_large = false;
  rapidjson::Document document;
  const auto parse = [&](rapidjson::Document& handler) {
    Guard guard(handler, options);
    result = reader.Parse<kParseFlags>(stream, guard);
    too_deep = guard.too_deep();
    too_many = guard.too_many();
    bad_text = guard.bad_text();
    too_large = guard.too_large();
    return !result.IsError();
  };
  document.Populate(parse);
  if (too_deep) {
    refuse(result.Offset(), "more than " + std::to_string(options.depth_max) +
                                " arrays and objects inside each other");
  }
  if (too_many) {
    refuse(result.Offset(), "more than " + std::to_string(options.nodes_max) + " values and names");
  }
  if (too_large) refuse(result.Offset(), "a number that no double can hold");
  if (bad_text) refuse(result.Offset(), "half of a surrogate pair in a string");
  if (result.IsError()) refuse(result.Offset(), rapidjson::GetParseError_En(result.Code()));
  // To the parser a zero byte is the end of the text.
  if (stream.Tell() < text.size()) refuse(stream.Tell(), "a zero byte after the value");
  if (!options.keep_repeated) KeepLastOfRepeated(document);
  return document;
}

const rapidjson::Value* FindNonNull(const rapidjson::Value& object, std::string_view name) {
  const rapidjson::Value key(
      rapidjson::StringRef(name.data(), static_cast<rapidjson::SizeType>(name.size())));
  const auto found = object.FindMember(key);
  return found == object.MemberEnd() || found->value.IsNull() ? nullptr : &found->value;
}

std::string WriteJson(const rapidjson::Value& value) {
  rapidjson::StringBuffer buffer;
  Writer writer(buffer);
  SafeWriter safe(writer);
  value.Accept(safe);
  return {buffer.GetString(), buffer.GetSize()};
}

}  // namespace bloomery

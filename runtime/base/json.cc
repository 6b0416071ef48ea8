#include "runtime/base/json.h"

#include <rapidjson/encodedstream.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/utf8.h"

namespace bloomery {
namespace internal {

void ThrowJsonMisuse(const char* condition) {
  throw Error(ErrorKind::kInternal, std::string("wrong use of a JSON value: not ") + condition);
}

}  // namespace internal

namespace {

constexpr unsigned kParseFlags = rapidjson::kParseIterativeFlag |
                                 rapidjson::kParseFullPrecisionFlag |
                                 rapidjson::kParseValidateEncodingFlag;

// Passes parse events on to the document until arrays and objects nest too deep, or a text is none:
// the reader lets half of a surrogate pair pass when it is the low one.
class Guard {
 public:
  using Ch = char;
  using Size = rapidjson::SizeType;

  Guard(rapidjson::Document& document, int depth_max)
      : document_(document), depth_max_(depth_max) {}

  bool too_deep() const { return too_deep_; }
  bool bad_text() const { return bad_text_; }

  bool Null() { return document_.Null(); }
  bool Bool(bool value) { return document_.Bool(value); }
  bool Int(int value) { return document_.Int(value); }
  bool Uint(unsigned value) { return document_.Uint(value); }
  bool Int64(int64_t value) { return document_.Int64(value); }
  bool Uint64(uint64_t value) { return document_.Uint64(value); }
  bool Double(double value) { return document_.Double(value); }
  bool RawNumber(const Ch* text, Size length, bool copy) {
    return document_.RawNumber(text, length, copy);
  }
  bool String(const Ch* text, Size length, bool copy) {
    return IsText(text, length) && document_.String(text, length, copy);
  }
  bool Key(const Ch* text, Size length, bool copy) {
    return IsText(text, length) && document_.Key(text, length, copy);
  }
  bool StartObject() { return Enter() && document_.StartObject(); }
  bool EndObject(Size members) { return Leave() && document_.EndObject(members); }
  bool StartArray() { return Enter() && document_.StartArray(); }
  bool EndArray(Size elements) { return Leave() && document_.EndArray(elements); }

 private:
  bool Enter() {
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
  bool too_deep_ = false;
  bool bad_text_ = false;
};

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
  bool bad_text = false;
  rapidjson::Document document;
  const auto parse = [&](rapidjson::Document& handler) {
    Guard guard(handler, options.depth_max);
    result = reader.Parse<kParseFlags>(stream, guard);
    too_deep = guard.too_deep();
    bad_text = guard.bad_text();
    return !result.IsError();
  };
  document.Populate(parse);
  if (too_deep) {
    refuse(result.Offset(), "more than " + std::to_string(options.depth_max) +
                                " arrays and objects inside each other");
  }
  if (bad_text) refuse(result.Offset(), "half of a surrogate pair in a string");
  if (result.IsError()) refuse(result.Offset(), rapidjson::GetParseError_En(result.Code()));
  // To the parser a zero byte is the end of the text.
  if (stream.Tell() < text.size()) refuse(stream.Tell(), "a zero byte after the value");
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

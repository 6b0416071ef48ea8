#include "runtime/text/chat/call_arguments.h"

#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/chat/json_scan.h"
#include "runtime/text/jinja/json.h"

namespace bloomery::chat {
namespace {

using jinja::Value;

constexpr std::string_view kSpace = " \t\r\n";

// Where the JSON value that begins behind white space at `from` lies.
std::string_view ValueAt(std::string_view text, size_t from) {
  const size_t begin = text.find_first_not_of(kSpace, from);
  if (begin == std::string_view::npos) return {};
  JsonScan scan;
  for (size_t at = begin; at < text.size(); ++at) {
    const JsonScan::Result result = scan.Feed(text[at]);
    if (result == JsonScan::Result::kDone) return text.substr(begin, at + 1 - begin);
    if (result == JsonScan::Result::kDoneBefore) return text.substr(begin, at - begin);
    if (result == JsonScan::Result::kBad) return {};
  }
  return {};
}

// The members' values as they stand in an object's text, which is JSON.
std::vector<std::string_view> MemberTexts(std::string_view object) {
  std::vector<std::string_view> texts;
  size_t at = 1;  // behind {
  while (at < object.size()) {
    const std::string_view key = ValueAt(object, at);
    if (key.empty()) break;
    const size_t colon =
        object.find(':', static_cast<size_t>(key.data() - object.data()) + key.size());
    if (colon == std::string_view::npos) break;
    const std::string_view value = ValueAt(object, colon + 1);
    if (value.empty()) break;
    texts.push_back(value);
    // Behind the comma, or the closing brace.
    at = object.find_first_of(",}",
                              static_cast<size_t>(value.data() - object.data()) + value.size());
    if (at == std::string_view::npos) break;
    ++at;
  }
  return texts;
}

// Responses show an id with this before it, and get it back so.
std::string_view Bare(std::string_view id) {
  constexpr std::string_view kPrefix = "call_";
  return id.starts_with(kPrefix) ? id.substr(kPrefix.size()) : id;
}

std::string_view StringOf(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

// Whether arguments, as text or object, mean what `written` does.
bool Mean(const rapidjson::Value& arguments, const std::string& written) {
  try {
    const rapidjson::Document meant = ParseJson(written, "arguments");
    if (!arguments.IsString()) return arguments == meant;
    return ParseJson(StringOf(arguments), "arguments") == meant;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Value ArgumentsAsWritten(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  Value parsed = jinja::TryParseJson(text, jinja::Origin::kInput);
  if (!parsed.is_dict()) return {};
  std::vector<Value::DictEntry> entries = parsed.Entries();
  const std::vector<std::string_view> texts = MemberTexts(text);
  // A name that comes twice is one entry: then nothing says whose text is whose.
  if (texts.size() != entries.size()) return parsed;
  for (size_t i = 0; i < entries.size(); ++i) {
    Value& value = entries[i].second;
    if (value.is_dict() || value.is_list()) value = value.WrittenAs(texts[i]);
  }
  return Value::Dict(std::move(entries)).WrittenAs(text);
}

void CallMemory::Remember(std::string_view id, std::string_view arguments) {
  Call call{std::string(Bare(id)), std::string(arguments)};
  std::lock_guard lock(mutex_);
  if (call.bytes() > bytes_max_ || by_id_.contains(call.id)) return;
  bytes_ += call.bytes();
  calls_.push_front(std::move(call));
  by_id_.emplace(calls_.front().id, calls_.begin());
  while (bytes_ > bytes_max_ || calls_.size() > limits::kCallMemoryCallsMax) {
    bytes_ -= calls_.back().bytes();
    by_id_.erase(calls_.back().id);
    calls_.pop_back();
  }
}

std::optional<std::string> CallMemory::Find(std::string_view id) {
  std::lock_guard lock(mutex_);
  const auto found = by_id_.find(Bare(id));
  if (found == by_id_.end()) return std::nullopt;
  calls_.splice(calls_.begin(), calls_, found->second);
  return found->second->arguments;
}

void CallMemory::Restore(rapidjson::Document& body) {
  const auto member = [](rapidjson::Value& object, const char* name) -> rapidjson::Value* {
    if (!object.IsObject()) return nullptr;
    const auto found = object.FindMember(name);
    return found == object.MemberEnd() ? nullptr : &found->value;
  };
  rapidjson::Value* messages = member(body, "messages");
  if (messages == nullptr || !messages->IsArray()) return;
  for (auto& message : messages->GetArray()) {
    rapidjson::Value* calls = member(message, "tool_calls");
    if (calls == nullptr || !calls->IsArray()) continue;
    for (auto& call : calls->GetArray()) {
      const rapidjson::Value* id = member(call, "id");
      rapidjson::Value* function = member(call, "function");
      rapidjson::Value* arguments = function == nullptr ? nullptr : member(*function, "arguments");
      if (id == nullptr || !id->IsString() || arguments == nullptr) continue;
      const auto written = Find(StringOf(*id));
      if (written && Mean(*arguments, *written)) {
        arguments->SetString(written->data(), static_cast<rapidjson::SizeType>(written->size()),
                             body.GetAllocator());
      }
    }
  }
}

}  // namespace bloomery::chat

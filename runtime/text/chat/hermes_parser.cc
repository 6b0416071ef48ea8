// Calls as JSON: <tool_call>{"name": "f", "arguments": {…}}</tool_call>, white space anywhere JSON
// has it, members in any order. A call is announced when its name is known and its arguments begin;
// from there the arguments stream as they stand in the answer.
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/chat/json_scan.h"
#include "runtime/text/chat/tool_call_parser.h"

namespace bloomery::chat {
namespace {

constexpr std::string_view kOpener = "<tool_call>";
constexpr std::string_view kCloser = "</tool_call>";

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The string that JSON text `text` stands for; nothing when it is none.
std::optional<std::string> StringOf(std::string_view text) {
  try {
    const rapidjson::Document value = ParseJson(text, "string");
    if (value.IsString()) return std::string(value.GetString(), value.GetStringLength());
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

bool IsObjectText(std::string_view text) {
  try {
    return ParseJson(text, "arguments").IsObject();
  } catch (const Error&) {
    return false;
  }
}

class HermesParser final : public ToolCallParser {
 public:
  HermesParser(std::shared_ptr<const ToolSet> tools, ChatOutput::MakeId make_id)
      : ToolCallParser(std::move(tools), std::move(make_id), {kOpener}, {kCloser}) {}

 private:
  enum class State { kOpen, kFirstKey, kKey, kColon, kValue, kAfterValue, kClose };

  void BeginCall(std::string_view opener) override {
    at_ = opener.size();
    state_ = State::kOpen;
    scanning_ = false;
    streaming_ = false;
    name_.reset();
    early_arguments_.reset();
  }

  bool StepCall() override {
    while (at_ < held().size()) {
      if (state_ == State::kClose && !IsSpace(held()[at_])) {
        const std::string_view rest = std::string_view(held()).substr(at_);
        if (rest.starts_with(kCloser)) {
          return End(at_ + kCloser.size());
        }
        if (ending() == AnswerEnding::kNone && kCloser.starts_with(rest)) return false;
        return End(at_);
      }
      if (!Look(held()[at_]) || (!announced() && at_ > limits::kToolCallHeadBytesMax)) {
        return End(at_);
      }
    }
    if (streaming_) TakeArguments();
    if (ending() == AnswerEnding::kNone) return false;
    return End(at_);
  }

  // The call is over, well or not: it was closed, what comes is no part of a call, or nothing
  // comes. What has a name and all its arguments is a call, and what follows those is content.
  bool End(size_t closed_at) {
    if (!announced() && (state_ != State::kClose || !AnnounceWith("{}"))) {
      // The text of the answer may have ended before the call's.
      at_ == held().size() && ending() != AnswerEnding::kNone ? LeaveOpen() : Abandon();
      return true;
    }
    const bool complete = !streaming_;
    if (streaming_) TakeArguments();
    if (state_ == State::kClose) Drop(closed_at);
    EndCall(complete);
    return true;
  }

  void TakeArguments() {
    Arguments(std::string_view(held()).substr(0, at_));
    Drop(at_);
    at_ = 0;
  }

  bool AnnounceWith(std::string_view arguments) {
    if (!name_) return false;
    Announce(*name_);
    Arguments(arguments);
    return true;
  }

  // Takes the byte at at_. False: it does not belong into a call.
  bool Look(char c) {
    if (scanning_) return Scan(c);
    if (IsSpace(c)) return Take(state_);
    switch (state_) {
      case State::kOpen:
        return c == '{' && Take(State::kFirstKey);
      case State::kFirstKey:
        if (c == '}') return Take(State::kClose);
        [[fallthrough]];
      case State::kKey:
        state_ = State::kKey;
        return c == '"' && BeginScan();
      case State::kColon:
        return c == ':' && Take(State::kValue);
      case State::kValue:
        return BeginValue(c);
      case State::kAfterValue:
        return (c == ',' && Take(State::kKey)) || (c == '}' && Take(State::kClose));
      case State::kClose:
        break;
    }
    return false;
  }

  bool Take(State next) {
    ++at_;
    state_ = next;
    return true;
  }

  bool BeginScan() {
    scan_ = JsonScan();
    scanning_ = true;
    value_ = at_;
    return true;
  }

  bool Scan(char c) {
    const JsonScan::Result result = scan_.Feed(c);
    if (result == JsonScan::Result::kBad) return false;
    if (result != JsonScan::Result::kDoneBefore) ++at_;
    if (result == JsonScan::Result::kMore) return true;
    scanning_ = false;
    const std::string_view text = std::string_view(held()).substr(value_, at_ - value_);
    if (state_ == State::kKey) {
      key_ = StringOf(text).value_or("");
      state_ = State::kColon;
      return true;
    }
    state_ = State::kAfterValue;
    return EndValue(text);
  }

  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  bool BeginValue(char c) {
    if (key_ == "name" && (name_ || c != '"')) return false;
    if (IsArguments()) {
      if (announced() || early_arguments_) return false;
      if (c == '{' && name_) {
        Announce(*name_);
        Drop(at_);
        at_ = 0;
        streaming_ = true;
      }
    }
    return BeginScan();
  }

  // A member's value, which ends before at_. False: no call has such a value.
  bool EndValue(std::string_view text) {
    if (streaming_) {
      TakeArguments();
      streaming_ = false;
      return true;
    }
    if (key_ == "name") {
      name_ = StringOf(text);
      if (!name_ || tools().Find(*name_) == nullptr) return false;
    } else if (IsArguments()) {
      // null is no arguments; a string is taken for the object it holds.
      early_arguments_ = text == "null" ? "{}" : StringOf(text).value_or(std::string(text));
      if (!IsObjectText(*early_arguments_)) return false;
    }
    if (!announced() && name_ && early_arguments_) {
      AnnounceWith(*early_arguments_);
      Drop(at_);
      at_ = 0;
    }
    return true;
  }

  size_t at_ = 0;     // in held(): the next byte to look at
  size_t value_ = 0;  // in held(): where the key or value being scanned begins
  State state_ = State::kOpen;
  JsonScan scan_;
  bool scanning_ = false;
  bool streaming_ = false;  // arguments, from the beginning of held()
  std::string key_;
  std::optional<std::string> name_;             // of a function there is
  std::optional<std::string> early_arguments_;  // that came before the name, or as a string
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeHermesParser(std::shared_ptr<const ToolSet> tools,
                                                 ChatOutput::MakeId make_id) {
  return std::make_unique<HermesParser>(std::move(tools), std::move(make_id));
}

}  // namespace bloomery::chat

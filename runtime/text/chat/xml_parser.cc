// Calls as XML-like markup, where each argument is a text between tags: the Qwen, GLM and DSML
// forms, told apart by a table. The arguments go out as a JSON object that is written while the
// answer streams: a parameter that is text by its schema (or by its own mark) streams as it forms,
// any other is converted when it closes.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/chat/partial_tag.h"
#include "runtime/text/chat/tool_call_parser.h"

namespace bloomery::chat {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

struct Markup {
  std::vector<std::string_view> blocks;     // open a call, or a list of calls
  std::string_view call;                    // opens a call inside them; "": the block does
  std::string_view name_end;                // "": the name ends where the next tag begins
  std::vector<std::string_view> call_ends;  // the first is the proper one
  std::vector<std::string_view> closers;    // without meaning behind a call
  std::string_view parameter;               // opens a parameter; its name follows
  std::string_view parameter_end;           // behind the name
  std::string_view value;                   // opens the value, behind white space; "": none
  std::string_view value_end;
  bool framed;  // a newline at either end of a value belongs to the markup
  bool marked;  // the parameter's name carries whether the value is text
};

const Markup kQwen = {.blocks = {"<tool_call>"},
                      .call = "<function=",
                      .name_end = ">",
                      .call_ends = {"</function>", "</tool_call>"},
                      .closers = {"</function>", "</tool_call>"},
                      .parameter = "<parameter=",
                      .parameter_end = ">",
                      .value = "",
                      .value_end = "</parameter>",
                      .framed = true,
                      .marked = false};

const Markup kQwenInline = [] {
  Markup markup = kQwen;
  markup.framed = false;
  return markup;
}();

const Markup kGlm = {.blocks = {"<tool_call>"},
                     .call = "",
                     .name_end = "",
                     .call_ends = {"</tool_call>"},
                     .closers = {"</tool_call>"},
                     .parameter = "<arg_key>",
                     .parameter_end = "</arg_key>",
                     .value = "<arg_value>",
                     .value_end = "</arg_value>",
                     .framed = false,
                     .marked = false};

const Markup kDsml = {
    .blocks = {"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"},
    .call = "<｜DSML｜invoke name=\"",
    .name_end = "\">",
    .call_ends = {"</｜DSML｜invoke>", "</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"},
    .closers = {"</｜DSML｜invoke>", "</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"},
    .parameter = "<｜DSML｜parameter name=\"",
    .parameter_end = "\">",
    .value = "",
    .value_end = "</｜DSML｜parameter>",
    .framed = false,
    .marked = true};
constexpr std::string_view kTextMark = "\" string=\"";  // name" string="true

std::vector<std::string_view> OpenersOf(const Markup& markup) {
  std::vector<std::string_view> openers = markup.blocks;
  if (!markup.call.empty()) openers.push_back(markup.call);
  return openers;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// `text` as it stands inside a JSON string.
std::string Escaped(std::string_view text) {
  const std::string quoted = WriteJson(rapidjson::Value(
      rapidjson::StringRef(text.data(), static_cast<rapidjson::SizeType>(text.size()))));
  return quoted.substr(1, quoted.size() - 2);
}

std::string Quoted(std::string_view text) { return '"' + Escaped(text) + '"'; }

enum class Json { kNone, kText, kOther };

Json KindOf(std::string_view text) {
  try {
    return ParseJson(text, "value").IsString() ? Json::kText : Json::kOther;
  } catch (const Error&) {
    return Json::kNone;
  }
}

// Python's words, which models trained on it write.
std::optional<std::string_view> PythonWord(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return std::nullopt;
}

// The JSON of a value whose type is not just text. What is no JSON stays a text, so nothing is
// lost.
std::string Converted(std::string_view raw, ParameterTypes types) {
  const std::string_view text = Trim(raw);
  const Json kind = KindOf(text);
  // Where text is allowed too, quotes are part of it: templates write texts without.
  if (kind == Json::kOther || (kind == Json::kText && !types.text)) return std::string(text);
  if (types.other && !types.text) {
    if (const auto word = PythonWord(text)) return std::string(*word);
  }
  return Quoted(raw);
}

class XmlParser final : public ToolCallParser {
 public:
  XmlParser(const Markup& markup, std::shared_ptr<const ToolSet> tools, ChatOutput::MakeId make_id)
      : ToolCallParser(std::move(tools), std::move(make_id), OpenersOf(markup), markup.closers),
        markup_(&markup) {}

 private:
  enum class State { kBlock, kName, kMembers, kParameter, kValueStart, kValue };

  void BeginCall(std::string_view opener) override {
    at_ = opener.size();
    tool_ = nullptr;
    keys_.clear();
    state_ = markup_->call.empty() || opener == markup_->call ? State::kName : State::kBlock;
  }

  bool StepCall() override {
    switch (state_) {
      case State::kBlock:
        return StepBlock();
      case State::kName:
        return StepName();
      case State::kMembers:
        return StepMembers();
      case State::kParameter:
        return StepParameter();
      case State::kValueStart:
        return StepValueStart();
      case State::kValue:
        return StepValue();
    }
    return false;
  }

  // Needs more text, or there is none: then the call is over as it stands.
  bool Wait() {
    if (ending() == AnswerEnding::kNone) return false;
    if (announced()) return End(false);
    LeaveOpen();
    return true;
  }

  // The call is over; text from held()'s first byte on is content. Only before it was announced
  // does that take the opener in.
  bool End(bool complete) {
    if (!announced()) {
      Abandon();
      return true;
    }
    EndCall(complete);
    return true;
  }

  // Which of the tags comes at `from` behind white space, and where it ends.
  struct Found {
    int tag = -1;          // none
    size_t end = 0;        // of the tag
    bool partial = false;  // more text could make one
    bool waits = false;    // partial, and more text may come
  };
  Found Match(size_t from, std::initializer_list<std::string_view> first,
              const std::vector<std::string_view>& more = {}) const {
    const size_t begin = std::min(held().find_first_not_of(kSpace, from), held().size());
    const std::string_view rest = std::string_view(held()).substr(begin);
    bool partial = false;
    int index = 0;
    const auto look = [&](std::string_view tag) {
      if (rest.starts_with(tag)) return true;
      partial = partial || tag.starts_with(rest);
      ++index;
      return false;
    };
    for (const std::string_view tag : first) {
      if (look(tag)) return {.tag = index, .end = begin + tag.size()};
    }
    for (const std::string_view tag : more) {
      if (look(tag)) return {.tag = index, .end = begin + tag.size()};
    }
    return {.partial = partial, .waits = partial && ending() == AnswerEnding::kNone};
  }

  bool StepBlock() {
    const Found found = Match(at_, {markup_->call});
    if (found.tag < 0) return found.partial ? Wait() : End(false);
    at_ = found.end;
    state_ = State::kName;
    return true;
  }

  bool IsBeginningOfName(std::string_view text) const {
    return std::ranges::any_of(tools().tools(),
                               [&](const ToolSpec& tool) { return tool.name.starts_with(text); });
  }

  bool StepName() {
    const bool bare = markup_->name_end.empty();
    const size_t end = held().find(bare ? std::string_view("<") : markup_->name_end, at_);
    if (end == std::string::npos) {
      std::string_view begun = std::string_view(held()).substr(at_);
      if (!bare) begun = begun.substr(0, begun.size() - PartialTagEnd(begun, markup_->name_end));
      const bool fits = IsBeginningOfName(bare ? Trim(begun) : begun);
      return fits && begun.size() <= limits::kToolCallHeadBytesMax ? Wait() : End(false);
    }
    const std::string_view name = std::string_view(held()).substr(at_, end - at_);
    tool_ = tools().Find(bare ? Trim(name) : name);
    if (tool_ == nullptr) return End(false);
    at_ = end + markup_->name_end.size();
    state_ = State::kMembers;
    return true;
  }

  // Behind the name or a value: the next parameter or the end of the call. Only here a call is
  // announced, for a name alone may be talk about the markup.
  bool StepMembers() {
    const Found found = Match(at_, {markup_->parameter}, markup_->call_ends);
    if (found.tag < 0) {
      if (found.waits) return false;
      // All parameters so far are whole, and the answer was not cut: only the end is missing.
      const bool ended = held().find_first_not_of(kSpace, at_) == std::string::npos;
      if (announced() && ended && ending() != AnswerEnding::kCut) return Finish(held().size());
      return found.partial ? Wait() : End(false);
    }
    if (!announced()) {
      Announce(tool_->name);
      Arguments("{");
    }
    if (found.tag > 0) return Finish(found.end);
    Drop(found.end - markup_->parameter.size());
    at_ = markup_->parameter.size();
    state_ = State::kParameter;
    return true;
  }

  bool Finish(size_t end) {
    Arguments("}");
    Drop(end);
    EndCall(true);
    return true;
  }

  bool StepParameter() {
    const size_t end = held().find(markup_->parameter_end, at_);
    if (end == std::string::npos) {
      return held().size() - at_ <= limits::kToolCallHeadBytesMax ? Wait() : End(false);
    }
    std::string_view key = std::string_view(held()).substr(at_, end - at_);
    types_ = {};
    if (markup_->marked) {
      const size_t mark = key.rfind(kTextMark);
      if (mark == std::string_view::npos) return End(false);
      const std::string_view is_text = key.substr(mark + kTextMark.size());
      if (is_text != "true" && is_text != "false") return End(false);
      (is_text == "true" ? types_.text : types_.other) = true;
      key = key.substr(0, mark);
    } else if (const auto known = tool_->parameters.find(key); known != tool_->parameters.end()) {
      types_ = known->second;
    }
    if (key.empty() || !keys_.insert(std::string(key)).second) return End(false);
    key_ = key;
    at_ = end + markup_->parameter_end.size();
    state_ = State::kValueStart;
    return true;
  }

  bool StepValueStart() {
    if (!markup_->value.empty()) {
      const Found found = Match(at_, {markup_->value});
      if (found.tag < 0) return found.partial ? Wait() : End(false);
      at_ = found.end;
    }
    if (markup_->framed) {
      if (at_ == held().size()) return Wait();
      if (held()[at_] == '\n') ++at_;
    }
    Drop(at_);
    at_ = 0;
    Arguments((keys_.size() > 1 ? ", " : "") + Quoted(key_) + ": ");
    as_text_ = types_.text && !types_.other;
    if (as_text_) Arguments("\"");
    state_ = State::kValue;
    return true;
  }

  // The value is everything up to a closing tag behind which a call goes on: the tag alone may be
  // part of a text. at_ is where the search for it stands.
  bool StepValue() {
    for (;;) {
      const size_t close = held().find(markup_->value_end, at_);
      if (close == std::string::npos) {
        const size_t keep =
            ending() == AnswerEnding::kNone ? PartialTagEnd(held(), markup_->value_end) : 0;
        at_ = held().size() - keep;
        break;
      }
      at_ = close;
      const size_t behind = close + markup_->value_end.size();
      const Found next = Match(behind, {markup_->parameter}, markup_->call_ends);
      if (next.waits) break;
      if (next.tag >= 0 || next.partial) return EndValue(close, behind);
      at_ = close + 1;
    }
    if (ending() != AnswerEnding::kNone) return CutValue();
    StreamValue(Frame(at_));
    return false;
  }

  // `end` without the newline before it, where that may belong to the closing tag.
  size_t Frame(size_t end) const {
    return markup_->framed && end > 0 && held()[end - 1] == '\n' ? end - 1 : end;
  }

  void StreamValue(size_t end) {
    if (!as_text_) return;
    Arguments(Escaped(std::string_view(held()).substr(0, end)));
    Drop(end);
    at_ -= end;
  }

  bool EndValue(size_t close, size_t behind) {
    const std::string_view value = std::string_view(held()).substr(0, Frame(close));
    Arguments(as_text_ ? Escaped(value) + "\"" : Converted(value, types_));
    Drop(behind);
    at_ = 0;
    state_ = State::kMembers;
    return true;
  }

  // No closing tag came: the text of the value so far is in the arguments or becomes content.
  bool CutValue() {
    if (as_text_) StreamValue(held().size());
    return End(false);
  }

  const Markup* markup_;
  State state_ = State::kBlock;
  size_t at_ = 0;                   // in held()
  const ToolSpec* tool_ = nullptr;  // the function called
  std::set<std::string> keys_;      // of the parameters so far
  std::string key_;                 // of the one at hand
  ParameterTypes types_;
  bool as_text_ = false;  // its value streams
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeXmlParser(ToolSyntax syntax,
                                              std::shared_ptr<const ToolSet> tools,
                                              ChatOutput::MakeId make_id) {
  const Markup& markup = syntax == ToolSyntax::kQwenXml         ? kQwen
                         : syntax == ToolSyntax::kQwenXmlInline ? kQwenInline
                         : syntax == ToolSyntax::kGlmXml        ? kGlm
                                                                : kDsml;
  return std::make_unique<XmlParser>(markup, std::move(tools), std::move(make_id));
}

}  // namespace bloomery::chat

// The chat surface against its recordings: what a request renders to with the model's template, and
// what the host's parsers make of a recorded answer, in pieces of any size.
#include <bloomery/chat.h>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/base/json.h"
#include "runtime/plugin/chat_surface.h"
#include "runtime/plugin/instance.h"
#include "runtime/plugin/sized.h"
#include "runtime/text/chat/chat_output.h"
#include "runtime/text/chat/chat_template.h"

namespace bloomery::apps::check {
namespace {

// A fixed day for templates that ask for one.
constexpr int64_t kNow = 1767225600;  // 2026-01-01
constexpr int kCuts = 20;

// A surface with what it is judged by.
class Surface {
 public:
  explicit Surface(const Subject& subject)
      : plugin_(plugin::LoadPlugin(subject.path)),
        model_(OpenModel(subject)),
        instance_(plugin_, model_, {}) {
    const void* table = instance_.Extension(BL_EXT_CHAT_1);
    if (table == nullptr) throw NotApplicable("the plugin has no " BL_EXT_CHAT_1);
    chat_ = plugin::CopySized(static_cast<const bl_chat_1*>(table), BL_EXT_CHAT_1);
    surface_ = plugin::ReadChatSurface(table, plugin_.name);
    if (chat_.n_recordings == 0) throw NotApplicable("the chat surface has no recordings");
    template_.emplace(MakeTemplate());
  }

  plugin::SizedArray<bl_chat_recording> recordings() const {
    return {chat_.recordings, chat_.n_recordings, "recording"};
  }
  chat::RenderedPrompt Render(const rapidjson::Document& request) const {
    return template_->Render(chat::ParseChatRequest(request), kNow);
  }
  chat::OutputFormat FormatOf(const rapidjson::Document& request) const {
    chat::OutputFormat format;
    format.marks = {surface_.reasoning_open, surface_.reasoning_close};
    format.starts_in_reasoning = Render(request).starts_in_reasoning;
    // The plugin's own, whatever this model's template shows; without tools no calls are wanted.
    const auto tools = request.FindMember("tools");
    if (tools != request.MemberEnd()) {
      format.syntax = chat::ToolSyntaxNamed(surface_.tool_syntax);
      format.tools = std::make_shared<const chat::ToolSet>(tools->value);
    }
    return format;
  }

 private:
  chat::ChatTemplate MakeTemplate() const {
    const model::Metadata& metadata = model_.metadata();
    const auto text = [&](const char* key) {
      return std::string(metadata.FindString(key).value_or(""));
    };
    chat::ChatTemplate::Source source;
    source.main = text("tokenizer.chat_template");
    source.tool_use = text("tokenizer.chat_template.tool_use");
    source.marks = {surface_.reasoning_open, surface_.reasoning_close};
    if (metadata.Has("tokenizer.ggml.tokens")) {
      const model::MetadataArray& tokens = metadata.GetStringArray("tokenizer.ggml.tokens");
      const auto piece = [&](const char* key) {
        const auto id = metadata.FindU64(key);
        return id && *id < tokens.size() ? std::string(tokens.String(*id)) : std::string();
      };
      source.bos_text = piece("tokenizer.ggml.bos_token_id");
      source.eos_text = piece("tokenizer.ggml.eos_token_id");
    }
    source.adds_bos = metadata.FindBool("tokenizer.ggml.add_bos_token").value_or(false);
    source.adds_eos = metadata.FindBool("tokenizer.ggml.add_eos_token").value_or(false);
    return chat::ChatTemplate::Make(std::move(source));
  }

  plugin::LoadedPlugin plugin_;
  model::ModelFile model_;
  plugin::Instance instance_;
  bl_chat_1 chat_{};
  plugin::ChatSurface surface_;
  std::optional<chat::ChatTemplate> template_;
};

std::string Text(const rapidjson::Value& object, const char* key) {
  const auto member = object.FindMember(key);
  if (member == object.MemberEnd() || member->value.IsNull()) return {};
  Expect(member->value.IsString(), std::string("message_json: '") + key + "' is no string");
  return {member->value.GetString(), member->value.GetStringLength()};
}

// Throws Failed for what is no JSON object.
rapidjson::Document Object(const char* text, const std::string& what) {
  Expect(text != nullptr, what + " is null");
  rapidjson::Document document = ParseJson(text, what);
  Expect(document.IsObject(), what + " is no object");
  return document;
}

// The `function` of each recorded tool call.
std::vector<const rapidjson::Value*> CallsOf(const rapidjson::Document& message) {
  std::vector<const rapidjson::Value*> functions;
  const rapidjson::Value* calls = FindNonNull(message, "tool_calls");
  if (calls == nullptr) return functions;
  Expect(calls->IsArray(), "message_json: 'tool_calls' is no array");
  for (const rapidjson::Value& call : calls->GetArray()) {
    const rapidjson::Value* function = call.IsObject() ? FindNonNull(call, "function") : nullptr;
    Expect(function != nullptr && function->IsObject(), "message_json: tool call " +
                                                            std::to_string(functions.size()) +
                                                            " has no object 'function'");
    functions.push_back(function);
  }
  return functions;
}

void ExpectText(const std::string& what, const std::string& got, const std::string& recorded) {
  Expect(got == recorded, what + " is '" + Printable(got, 300) + "', recorded is '" +
                              Printable(recorded, 300) + "'");
}

chat::AssistantTurn Parse(const chat::OutputFormat& format, std::string_view output, Random* cuts) {
  int ids = 0;
  chat::ChatOutput parser(format, [&] { return "call_" + std::to_string(ids++); });
  chat::AssistantTurn turn;
  const auto add = [&](const std::vector<chat::OutputDelta>& deltas) {
    for (const chat::OutputDelta& delta : deltas) turn.Add(delta);
  };
  while (!output.empty()) {
    const size_t n =
        cuts == nullptr ? output.size() : 1 + cuts->Below(std::min<size_t>(9, output.size()));
    add(parser.Push(output.substr(0, n)));
    output.remove_prefix(n);
  }
  add(parser.Finish(chat::AnswerEnding::kEnd));
  return turn;
}

// Arguments are compared as JSON: how they are spaced is the model's matter.
std::string Canonical(const std::string& json, const std::string& what) {
  const rapidjson::Document document = ParseJson(json, what);
  return WriteJson(document);
}

void Compare(const chat::AssistantTurn& turn, const rapidjson::Document& message,
             const std::string& what) {
  ExpectText(what + ": content", turn.content, Text(message, "content"));
  ExpectText(what + ": reasoning_content", turn.reasoning, Text(message, "reasoning_content"));
  const std::vector<const rapidjson::Value*> calls = CallsOf(message);
  const size_t n = calls.size();
  Expect(turn.calls.size() == n, what + ": the answer has " + std::to_string(turn.calls.size()) +
                                     " tool calls, recorded are " + std::to_string(n));
  for (size_t i = 0; i < n; ++i) {
    const rapidjson::Value& function = *calls[i];
    const std::string call = what + ", call " + std::to_string(i);
    ExpectText(call + ": name", turn.calls[i].name, Text(function, "name"));
    ExpectText(call + ": arguments", Canonical(turn.calls[i].arguments, call),
               Canonical(Text(function, "arguments"), call));
  }
}

void AnswersParseAsRecorded(const Subject& subject) {
  const Surface surface(subject);
  Random random(subject.seed);
  int parsed = 0;
  const auto recordings = surface.recordings();
  for (uint32_t i = 0; i < recordings.size(); ++i) {
    const bl_chat_recording recording = recordings[i];
    if (recording.output == nullptr || recording.message_json == nullptr) continue;
    const std::string what = "recording " + std::to_string(i);
    const rapidjson::Document request = Object(recording.request_json, what + ": request_json");
    const rapidjson::Document message = Object(recording.message_json, what + ": message_json");
    const chat::OutputFormat format = surface.FormatOf(request);
    Compare(Parse(format, recording.output, nullptr), message, what);
    for (int cut = 0; cut < kCuts; ++cut) {
      Compare(Parse(format, recording.output, &random), message, what + ", in pieces");
    }
    ++parsed;
  }
  if (parsed == 0) throw NotApplicable("no recording has an answer");
}

void RequestsRenderAsRecorded(const Subject& subject) {
  const Surface surface(subject);
  int rendered = 0;
  const auto recordings = surface.recordings();
  for (uint32_t i = 0; i < recordings.size(); ++i) {
    const bl_chat_recording recording = recordings[i];
    if (recording.prompt == nullptr) continue;
    const std::string what = "recording " + std::to_string(i);
    const rapidjson::Document request = Object(recording.request_json, what + ": request_json");
    ExpectText(what + ": the prompt", surface.Render(request).text, recording.prompt);
    ++rendered;
  }
  if (rendered == 0) throw NotApplicable("no recording has a prompt");
}

}  // namespace

std::vector<Check> ChatChecks() {
  return {{"chat.answers_parse_as_recorded", true, AnswersParseAsRecorded},
          {"chat.requests_render_as_recorded", true, RequestsRenderAsRecorded}};
}

}  // namespace bloomery::apps::check

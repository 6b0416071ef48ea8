// Answers from anywhere: the first byte chooses how they are read, the rest is the answer. Nothing
// may crash, the pieces of a stream must say what the whole says (the same error, if one), calls
// must begin and end in order, and each call's arguments must be a JSON object.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/chat_output.h"

namespace {

using bloomery::chat::AnswerEnding;
using bloomery::chat::AssistantTurn;
using bloomery::chat::ChatOutput;
using bloomery::chat::OutputDelta;
using bloomery::chat::OutputFormat;
using bloomery::chat::ReasoningFormat;
using bloomery::chat::ToolSyntax;

std::shared_ptr<const bloomery::chat::ToolSet> Tools() {
  static const auto tools = std::make_shared<const bloomery::chat::ToolSet>(bloomery::ParseJson(
      R"([{"function":{"name":"f","parameters":{"properties":{
            "s":{"type":"string"},"i":{"type":"integer"},"m":{"type":["string","null"]}}}}},
          {"function":{"name":"fg"}}])",
      "tools"));
  return tools;
}

void Take(const std::vector<OutputDelta>& deltas, AssistantTurn& turn, bool& open) {
  for (const OutputDelta& delta : deltas) {
    const bool of_call = delta.kind == OutputDelta::Kind::kCallArguments ||
                         delta.kind == OutputDelta::Kind::kCallEnd;
    if (of_call != open || (of_call && delta.call + 1 < turn.calls.size())) std::abort();
    if (delta.kind == OutputDelta::Kind::kCallBegin) open = true;
    if (delta.kind == OutputDelta::Kind::kCallEnd) open = false;
    turn.Add(delta);
  }
}

std::string Read(const OutputFormat& format, std::string_view text, size_t size,
                 AnswerEnding ending) {
  AssistantTurn turn;
  bool open = false;
  ChatOutput output(format, [] { return std::string("id"); });
  try {
    for (size_t at = 0; at < text.size(); at += size) {
      Take(output.Push(text.substr(at, size)), turn, open);
    }
    Take(output.Finish(ending), turn, open);
  } catch (const bloomery::chat::CallError& error) {
    return error.what();
  }
  if (open) std::abort();
  std::string all = turn.reasoning + '\0' + turn.content;
  for (const auto& call : turn.calls) {
    all += '\0' + call.name + '\0' + call.arguments;
    if (!bloomery::ParseJson(call.arguments, "arguments").IsObject()) std::abort();
    if (!bloomery::chat::ArgumentsAsWritten(call.arguments).is_dict()) std::abort();
  }
  if (turn.calls.empty() == output.has_calls()) std::abort();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t how = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  OutputFormat format;
  format.marks = {"<think>", "</think>"};
  format.syntax = static_cast<ToolSyntax>(1 + how % 5);
  format.starts_in_reasoning = (how & 4) != 0;
  format.reasoning = static_cast<ReasoningFormat>((how >> 3) % 3);
  format.tools = Tools();
  constexpr AnswerEnding kEndings[] = {AnswerEnding::kEnd, AnswerEnding::kCut,
                                       AnswerEnding::kStopped, AnswerEnding::kEnd};
  const AnswerEnding ending = kEndings[how >> 6];
  const std::string whole = Read(format, text, size, ending);
  if (Read(format, text, 1, ending) != whole || Read(format, text, 3, ending) != whole) {
    std::abort();
  }
  return 0;
}

// Answers pushed through ChatOutput in every way a stream may bring them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::chat::test {

inline std::shared_ptr<const ToolSet> Tools(std::string_view json) {
  return std::make_shared<const ToolSet>(ParseJson(json, "tools"));
}

// Functions that the recorded answers call.
inline std::shared_ptr<const ToolSet> KitchenTools() {
  return Tools(R"([
    {"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{
      "city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},
      "tags":{"type":"array"},"note":{"type":["string","null"]}}}}},
    {"type":"function","function":{"name":"weather_map"}},
    {"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{
      "path":{"type":"string"},"text":{"type":"string"},"mode":{"enum":["a","w"]},
      "size":{"anyOf":[{"type":"integer"},{"type":"number"}]},"kind":{"$ref":"#/$defs/Kind"}},
      "$defs":{"Kind":{"type":"string"}}}}}])");
}

struct Read {
  AssistantTurn turn;
  std::vector<OutputDelta> deltas;
  bool has_calls = false;
  std::string error;  // of a call that cannot be read; the turn is what came before
  // Every text of the turn in the order it came: nothing of an answer but markup is missing in it.
  std::string all;
};

inline Read ReadInPieces(const OutputFormat& format, std::string_view text, size_t size,
                         AnswerEnding ending = AnswerEnding::kEnd) {
  Read read;
  int ids = 0;
  ChatOutput output(format, [&ids] { return "id" + std::to_string(ids++); });
  const auto take = [&](const std::vector<OutputDelta>& deltas) {
    for (const OutputDelta& delta : deltas) {
      read.turn.Add(delta);
      read.all += delta.text;
      read.deltas.push_back(delta);
    }
  };
  try {
    for (size_t at = 0; at < text.size(); at += size) take(output.Push(text.substr(at, size)));
    take(output.Finish(ending));
  } catch (const CallError& error) {
    read.error = error.what();
  }
  read.has_calls = output.has_calls();
  return read;
}

// Of an answer with an error the error alone: how much of the turn came before depends on the
// pieces.
inline std::string Shown(const Read& read) {
  if (!read.error.empty()) return "E[" + read.error + "]";
  std::string out = "R[" + read.turn.reasoning + "] C[" + read.turn.content + "]";
  for (const auto& call : read.turn.calls) out += " " + call.name + call.arguments;
  return out;
}

}  // namespace bloomery::chat::test

// What the routes need of a loaded model: its names and numbers, and the parts that work with it.
// Owns nothing; the composition in apps/ owns the parts and outlives the server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/exec/residency.h"
#include "runtime/exec/residency_driver.h"
#include "runtime/serve/json_value.h"
#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::serve {

struct ModelInfo {
  std::string name;          // without folder: the id where no alias is given
  std::string path;          // as opened
  std::string architecture;  // as the file says
  std::string plugin;        // name and version of the plugin that serves it
  std::string ftype;         // "Q4_K_M"
  int64_t created = 0;       // when the file was last written, seconds since 1970
  uint64_t bytes = 0;
  uint64_t parameters = 0;
  int64_t context_trained = 0;
  int64_t embedding_width = 0;
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t experts_used = 0;
};

// How the model is talked to, as its plugin says; what the marks and ids of it concern is in the
// tokenizer and the template already.
struct ChatInfo {
  std::vector<std::string> stop_texts;  // end every answer beside the request's own
  std::string tool_syntax;              // "" where the plugin names none
  Json recommended_sampling;            // an object; the defaults stay llama-server's
};

struct Seat {
  ModelInfo model;
  engine::Engine* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  chat::CallMemory* calls = nullptr;          // what the model wrote in earlier calls; any thread
  text::GrammarCompiler* grammars = nullptr;  // of this tokenizer; any thread
  const chat::ChatTemplate* chat_template = nullptr;
  ChatInfo chat;
  Json devices = Json::Array();  // cards that passes run on, as they were when the model was loaded
  std::vector<std::string> inexact_operators;  // row-stable and band kernels: "op/1 (band)"
  Json
      kernels;  // what runs, and which promises do not hold, for /props; null when there is nothing
  // Memory by tier and the experts' rows, from any thread; empty where nobody knows.
  std::function<exec::Residency()> residency;
  // What residency did since loading, and asking it to begin anew before the next pass (throws
  // where nothing can move); from any thread; empty where nobody knows.
  std::function<exec::ResidencyStatus()> residency_status;
  std::function<void()> reset_residency;
};

}  // namespace bloomery::serve

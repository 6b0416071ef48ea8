// The grammar of a request's tool calls, in each syntax that models write them: the markup with the
// functions' names, and for their arguments what their schemas allow. As GBNF text for
// text::GrammarCompiler; one that is lazy constrains an answer from the first sign of a call on.
// Pure function of the request.
#pragma once

#include <string>

#include "runtime/base/json.h"
#include "runtime/text/chat/reasoning.h"
#include "runtime/text/chat/tool_syntax.h"
#include "runtime/text/grammar/grammar.h"

namespace bloomery::chat {

struct ToolGrammarRequest {
  ToolSyntax syntax = ToolSyntax::kNone;    // not kNone
  const rapidjson::Value* tools = nullptr;  // of the body, checked by ParseChatRequest
  std::string function;                     // only this one may be called; "": any
  // The answer is a call, behind a little free text; otherwise it may be one. Of a named function
  // the answer is the call alone.
  bool required = false;
  // An answer without calls is a document of this schema, if it is not null. Then no other text
  // comes before calls.
  const rapidjson::Value* response = nullptr;
  bool parallel = true;  // several calls
  ReasoningMarks marks;
  bool may_think = false;            // a span of reasoning may come before a required call
  bool starts_in_reasoning = false;  // the prompt ends inside one
};

struct ToolGrammar {
  std::string source;
  text::GrammarOptions options;  // without preserved tokens
};

// Where at most a few parameters are declared they may come in any order, each once and required
// ones in any case; with more of them the required ones come in their order, then the others.
// Throws Error(kBadRequest) naming the tool for a schema that cannot be a function's parameters.
ToolGrammar MakeToolGrammar(const ToolGrammarRequest& request);

}  // namespace bloomery::chat

// How one API writes an answer. A dialect is fed the events of a request's choices in order and
// turns them into stream events or, at the end, into one body; both come from the same state, so a
// streamed and a collected answer hold the same text. One object a request, used by one thread at a
// time. It never sees sockets or the engine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/request.h"
#include "runtime/serve/errors.h"
#include "runtime/serve/json_value.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {

// Stream events ready to send, each with its framing.
using StreamEvents = std::vector<std::string>;

// "data: {…}\n\n"
std::string DataEvent(const Json& json);
// The same behind "event: " and the value's own "type".
std::string NamedEvent(const Json& json);

class Dialect {
 public:
  virtual ~Dialect() = default;

  // A slot has the request; of a stream the head is out.
  virtual void OnBegin(StreamEvents& /*out*/) {}
  // `index` numbers the choices over all prompts of the request, from 0.
  virtual void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) = 0;
  // These two throw Error where what the model wrote is no answer: it ends the request.
  virtual void OnText(size_t index, const engine::Text& text, StreamEvents& out) = 0;
  virtual void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) = 0;
  // Every choice has finished: what ends the stream.
  virtual void OnEnd(StreamEvents& out) = 0;

  // How an error is written in place of the whole answer.
  virtual ErrorForm error_form() const { return ErrorForm::kOpenAi; }
  // The error that ends a stream which has begun.
  virtual void OnError(const ApiError& error, StreamEvents& out) = 0;

  // Every choice has finished: the whole answer.
  virtual Json Body() = 0;

  // About how long the answer will be that is being collected; 0 for a stream.
  size_t collected_bytes() const { return collected_bytes_; }

 protected:
  // Adds one step's text and its probabilities to that.
  void Collect(const std::string& text, const std::vector<Json>& probabilities);

 private:
  size_t collected_bytes_ = 0;
};

// Parts that several dialects share.
Json TimingsJson(const engine::Timings& timings);
Json ProgressJson(const engine::Progress& progress);
Json UsageJson(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens);
// One entry of completion_probabilities or logprobs.content, as written text.
Json ProbabilityJson(const engine::TokenProbabilities& entry, bool post_sampling);

// Which probabilities an answer shows.
struct ProbabilityOptions {
  bool wanted = false;
  bool alternatives = true;  // false: of the drawn token alone
  bool post_sampling = false;
};
// The entries of one step, one a token.
std::vector<Json> ProbabilitiesJson(const engine::Text& text, const ProbabilityOptions& options);

// "stop" or "length".
std::string_view FinishReason(engine::StopType type);
// How an answer that ended so is read to its end.
chat::AnswerEnding EndingOf(engine::StopType type);

inline constexpr std::string_view kDone = "data: [DONE]\n\n";

// What answers carry besides their text.
struct AnswerNames {
  std::string id;       // of OpenAI answers
  std::string model;    // the id of the model as served
  int64_t created = 0;  // seconds since 1970
};

// `prefix` and 32 random letters and digits.
std::string RandomId(std::string_view prefix);
// The server's build, as system_fingerprint and build_info show it; begins with "b".
std::string_view BuildName();

}  // namespace bloomery::serve

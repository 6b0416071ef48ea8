// What a client asks of the engine and what it hears back: one request type and one event stream
// for every dialect, streaming or not. Plain values, no threads, no behaviour beyond names. Text in
// events is always valid UTF-8; the texts of one choice joined are its whole output, so a streamed
// and a collected answer are equal.
//
// Members have initialisers so that designated ones may name a few: Submit({.prompt = ids}).
//
//   one request:  Begin  Progress*  ( Text* Finish ) once a choice, interleaved
//   or, at any place, Failed, which ends the stream for all choices
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/reasoning_budget.h"
#include "runtime/text/sampling.h"

namespace bloomery::engine {

struct GenerateRequest {
  std::string id{};                     // for logs, "" is fine
  std::vector<text::TokenId> prompt{};  // at least one, fewer than the slot's context

  // Seed, n_probs, post_sampling_probs and ignore_eos are in here. The engine validates it, appends
  // the bans of ignore_eos to logit_bias and puts the seed in use in the place of a random one.
  text::SamplingParams sampling{};

  // What the output must match, made by this model's GrammarCompiler; null: anything.
  std::shared_ptr<const text::Grammar> grammar{};

  int32_t n_predict = -1;  // tokens at most; -1: the engine's default; 0: evaluate the prompt only
  std::vector<std::string> stop{};  // empty strings are dropped
  int32_t choices = 1;              // 1..slots; choice i samples with seed + i
  bool cache_prompt = true;         // keep the common prefix of the slot
  int32_t id_slot = -1;             // wanted slot; a slot that does not exist means any
  bool return_progress = false;     // send Progress events
  bool show_special = false;        // print every control token
  std::vector<text::TokenId>
      preserved_tokens{};  // control tokens that print anyway, e.g. <tool_call>
  text::ReasoningLimit reasoning{};

  int32_t n_indent = 0;          // > 0: stop at a later line that is indented by fewer blanks
  int64_t t_max_predict_ms = 0;  // > 0: stop at the first newline after that time
  int32_t n_keep = 0;     // context shift is not offered: these two are checked (>= -1, >= 0)
  int32_t n_discard = 0;  // and have no effect, as in llama-server with shift off
};

// Every value is finite and >= 0. The first generated token comes from the prompt's
// last row, so generation rates divide by predicted_n - 1; with fewer than two tokens they are 0.
struct Timings {
  int32_t cache_n = 0;   // prompt tokens taken over from the slot
  int32_t prompt_n = 0;  // prompt tokens evaluated
  double prompt_ms = 0;
  double prompt_per_token_ms = 0;
  double prompt_per_second = 0;
  int32_t predicted_n = 0;
  double predicted_ms = 0;
  double predicted_per_token_ms = 0;
  double predicted_per_second = 0;
  int32_t draft_n = 0;  // tokens of drafts that were verified
  int32_t draft_n_accepted = 0;
};

// One generated token with n_probs > 0; there is an entry for every token.
struct TokenProbabilities {
  struct Alternative {
    text::TokenId token = text::kNoToken;
    std::string text{};  // the token's bytes, not always valid UTF-8
    double value = 0;
  };
  text::TokenId token = text::kNoToken;
  std::string text{};  // what this token released, "" while it is held
  double value = 0;    // natural logarithm; with post_sampling_probs the probability. Always finite
  std::vector<Alternative> top{};  // best first, at most n_probs
};

// A slot has the request: processing begins. For a stream this is the time to send the head.
struct Begin {
  int64_t id_task = -1;
  int32_t id_slot = -1;
};

// The first before any evaluation with processed == cache, then one per batch, the last with
// processed == total.
struct Progress {
  int32_t total = 0;
  int32_t cache = 0;
  int32_t processed = 0;  // includes cache
  double time_ms = 0;
};

// A piece of output. Every id comes in exactly one Text: the first in which text goes out after it
// was drawn. Only the last piece of a choice may have an empty text (ids that a stop string
// swallowed). With n_probs one entry per id, whose texts joined are `text`.
struct Text {
  int32_t choice = 0;
  int32_t id_slot = -1;
  std::string text{};
  std::vector<text::TokenId> tokens{};  // never empty
  std::vector<TokenProbabilities> probabilities{};
  int32_t tokens_evaluated = 0;  // the whole prompt
  int32_t tokens_predicted = 0;  // so far
  Timings timings{};             // so far
};

enum class StopType { kNone, kEos, kLimit, kWord };
std::string_view StopTypeName(StopType type);  // "none", "eos", "limit", "word"

struct Finish {
  int32_t choice = 0;
  int32_t id_slot = -1;
  StopType stop_type = StopType::kNone;
  std::string stopping_word{};
  bool truncated = false;  // the slot's context was full
  bool has_new_line = false;
  int32_t tokens_evaluated = 0;  // the whole prompt, cached part included
  int32_t tokens_predicted = 0;
  int32_t tokens_cached = 0;  // tokens the slot holds now
  Timings timings{};
};

// The request ended without an answer: a failed pass (kInternal), a stop of the server
// (kUnavailable), Cancel() (kCancelled).
struct Failed {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message{};
};

using Event = std::variant<Begin, Progress, Text, Finish, Failed>;

}  // namespace bloomery::engine

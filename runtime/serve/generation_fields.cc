#include "runtime/serve/generation_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/text/chat/reasoning.h"

namespace bloomery::serve {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// Fields some route reads, or that clients send and that change nothing here.
constexpr std::string_view kKnownFields[] = {
    "add_generation_prompt", "backend_sampling", "cache_prompt", "chat_template_kwargs",
    "continue_final_message", "dry_allowed_length", "dry_base", "dry_multiplier",
    "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range", "echo",
    "frequency_penalty", "id_slot", "ignore_eos", "include_usage", "input_extra", "input_prefix",
    "input_suffix", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "messages",
    "metadata", "min_keep", "min_p", "mirostat", "mirostat_eta", "mirostat_tau", "model", "n",
    "n_cache_reuse", "n_cmpl", "n_discard", "n_indent", "n_keep", "n_predict", "n_probs",
    "parallel_tool_calls", "post_sampling_probs", "presence_penalty", "prompt", "reasoning_effort",
    "reasoning_format", "repeat_last_n", "repeat_penalty", "response_fields", "response_format",
    "return_progress", "return_tokens", "samplers", "seed", "service_tier", "sse_ping_interval",
    "stop", "store", "stream", "stream_options", "t_max_predict_ms", "temperature",
    "timings_per_token", "tool_choice", "tools", "top_k", "top_logprobs", "top_n_sigma", "top_p",
    "typical_p", "user", "verbose", "xtc_probability", "xtc_threshold",
    // Refused by name when they ask for something.
    "adaptive_decay", "adaptive_target", "audio", "banned_regex", "banned_strings", "best_of",
    "expiring_logit_bias", "function_call", "functions", "grammar", "grammar_lazy",
    "grammar_triggers", "image_data", "json_schema", "lora", "modalities", "multimodal_data",
    "penalize_nl", "preserved_tokens", "reasoning_budget", "reasoning_budget_end_tag",
    "reasoning_budget_end_tags", "reasoning_budget_message", "reasoning_budget_start_tag",
    "reasoning_budget_tokens", "reasoning_control", "suffix", "tfs_z", "thinking_budget_tokens"};

// Token biases of one request that are taken whatever the vocabulary's size.
constexpr size_t kLogitBiasesMin = 4096;

// Whether a value asks for nothing: null, false, "", [], {}.
bool Empty(const rapidjson::Value& value) {
  return value.IsNull() || value.IsFalse() || (value.IsString() && value.GetStringLength() == 0) ||
         (value.IsArray() && value.Empty()) || (value.IsObject() && value.ObjectEmpty());
}

constexpr const char* kNoVision = "the model has no vision: it takes text only";

// Images and sounds, in and out. An answer without them would look like one about them.
void RefuseMediaFields(const Fields& body) {
  for (std::string_view name : {"image_data", "multimodal_data"}) {
    const rapidjson::Value* value = body.Find(name);
    if (value != nullptr && !Empty(*value)) RefuseField(name, kNoVision);
  }
  if (body.Find("audio") != nullptr) RefuseField("audio", "the model has no voice");
  for (const std::string& kind : body.Strings("modalities").value_or(std::vector<std::string>())) {
    if (kind != "text") {
      RefuseField("modalities", "'" + Printable(kind) + "': the model answers with text only");
    }
  }
}

void RefuseUnsupported(const Fields& body) {
  RefuseMediaFields(body);
  if (const auto* lora = body.Array("lora"); lora != nullptr && !lora->Empty()) {
    RefuseFeature("lora", "adapters are not supported");
  }
  for (std::string_view name :
       {"banned_strings", "banned_regex", "expiring_logit_bias", "penalize_nl"}) {
    const rapidjson::Value* value = body.Find(name);
    if (value != nullptr && !Empty(*value)) RefuseField(name, "not supported");
  }
  if (body.Real("tfs_z").value_or(1.0) != 1.0) RefuseField("tfs_z", "not supported");
}

void ReadReal(const Fields& body, std::string_view name, double& value) {
  if (const auto given = body.Real(name)) value = *given;
}

void ReadInteger(const Fields& body, std::string_view name, int64_t& value) {
  if (const auto given = body.Integer(name)) value = *given;
}

uint32_t ReadSeed(const Fields& body, uint32_t fallback) {
  const auto seed = body.Integer("seed");
  if (!seed) return fallback;
  // -1 is random; other values are taken modulo 2^32, so that any 64-bit seed names one stream.
  return static_cast<uint32_t>(static_cast<uint64_t>(*seed));
}

float BiasValue(const rapidjson::Value& value) {
  if (value.IsFalse()) return -std::numeric_limits<float>::infinity();
  if (!value.IsNumber() || !std::isfinite(value.GetDouble())) {
    RefuseField("logit_bias", "a bias must be a finite number or false");
  }
  return static_cast<float>(value.GetDouble());
}

// One bias a token is all there can be to say; a word list on a small vocabulary may repeat some.
// The list is kept for each slot and shown in answers, so it must not grow with the body.
void PushBias(const text::Tokenizer& tokenizer, text::LogitBias bias,
              std::vector<text::LogitBias>& biases) {
  const size_t limit = std::max(tokenizer.size(), kLogitBiasesMin);
  if (biases.size() >= limit) {
    RefuseField("logit_bias", "at most " + std::to_string(limit) + " tokens are taken");
  }
  biases.push_back(bias);
}

void AddBias(const text::Tokenizer& tokenizer, std::string_view words, float bias,
             std::vector<text::LogitBias>& biases) {
  // Every token of it is pushed, and the list is short: a long text would be tokenised for nothing.
  if (words.size() > limits::kStopStringBytesMax) {
    RefuseField("logit_bias", "a text may have " + std::to_string(limits::kStopStringBytesMax) +
                                  " bytes at most");
  }
  for (text::TokenId token : tokenizer.Tokenise(words)) PushBias(tokenizer, {token, bias}, biases);
}

void AddBiasOf(const text::Tokenizer& tokenizer, int64_t token, float bias,
               std::vector<text::LogitBias>& biases) {
  if (token >= 0 && token < static_cast<int64_t>(tokenizer.size())) {
    PushBias(tokenizer, {static_cast<text::TokenId>(token), bias}, biases);
  }
}

// [[id or text, bias], …] or {id-or-text: bias}. In the object form a key of digits is an id.
void ReadLogitBias(const Fields& body, const text::Tokenizer& tokenizer,
                   std::vector<text::LogitBias>& biases) {
  const rapidjson::Value* value = body.Find("logit_bias");
  if (value == nullptr) return;
  biases.clear();
  if (value->IsObject()) {
    for (const auto& member : value->GetObject()) {
      const std::string key(StringOf(member.name));
      const bool id =
          !key.empty() && key.size() <= 10 &&
          std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      const float bias = BiasValue(member.value);
      if (id) {
        AddBiasOf(tokenizer, std::stoll(key), bias, biases);
      } else {
        AddBias(tokenizer, key, bias, biases);
      }
    }
    return;
  }
  if (!value->IsArray()) RefuseField("logit_bias", "expected an array or an object");
  for (const auto& pair : value->GetArray()) {
    if (!pair.IsArray() || pair.Size() != 2) {
      RefuseField("logit_bias", "expected pairs of a token and a bias");
    }
    const float bias = BiasValue(pair[1]);
    if (pair[0].IsString()) {
      AddBias(tokenizer, StringOf(pair[0]), bias, biases);
    } else if (const auto id = IntegerOf(pair[0])) {
      AddBiasOf(tokenizer, *id, bias, biases);
    } else {
      RefuseField("logit_bias", "a token must be an id or a string");
    }
  }
}

void ReadSamplers(const Fields& body, text::SamplingParams& sampling) {
  const rapidjson::Value* value = body.Find("samplers");
  if (value == nullptr) return;
  text::SamplerList list = value->IsString() ? text::ParseSamplerLetters(StringOf(*value))
                                             : text::ParseSamplerNames(*body.Strings("samplers"));
  for (const std::string& name : list.unknown) {
    LOG(WARNING) << "unknown sampler skipped, as in llama-server: " << name;
  }
  sampling.samplers = std::move(list.stages);
}

text::SamplingParams ReadSampling(const Fields& body, const ServeSettings& settings,
                                  const Seat& seat, std::string_view probabilities_alias) {
  text::SamplingParams s = settings.sampling;
  ReadReal(body, "temperature", s.temperature);
  ReadReal(body, "dynatemp_range", s.dynatemp_range);
  ReadReal(body, "dynatemp_exponent", s.dynatemp_exponent);
  ReadInteger(body, "top_k", s.top_k);
  ReadReal(body, "top_p", s.top_p);
  ReadReal(body, "min_p", s.min_p);
  ReadReal(body, "typical_p", s.typical_p);
  ReadReal(body, "top_n_sigma", s.top_n_sigma);
  ReadReal(body, "xtc_probability", s.xtc_probability);
  ReadReal(body, "xtc_threshold", s.xtc_threshold);
  ReadReal(body, "repeat_penalty", s.repeat_penalty);
  ReadInteger(body, "repeat_last_n", s.repeat_last_n);
  ReadReal(body, "presence_penalty", s.presence_penalty);
  ReadReal(body, "frequency_penalty", s.frequency_penalty);
  ReadReal(body, "dry_multiplier", s.dry_multiplier);
  if (const auto base = body.Real("dry_base"); base && *base >= 1.0) s.dry_base = *base;
  ReadInteger(body, "dry_allowed_length", s.dry_allowed_length);
  ReadInteger(body, "dry_penalty_last_n", s.dry_penalty_last_n);
  if (auto breakers = body.Strings("dry_sequence_breakers")) {
    if (breakers->empty()) RefuseField("dry_sequence_breakers", "expected at least one string");
    s.dry_sequence_breakers = std::move(*breakers);
  }
  ReadInteger(body, "mirostat", s.mirostat);
  ReadReal(body, "mirostat_tau", s.mirostat_tau);
  ReadReal(body, "mirostat_eta", s.mirostat_eta);
  ReadReal(body, "adaptive_target", s.adaptive_target);
  ReadReal(body, "adaptive_decay", s.adaptive_decay);
  s.seed = ReadSeed(body, s.seed);
  if (!probabilities_alias.empty()) {
    if (const auto n = body.Integer(probabilities_alias, 0, limits::kAlternativesMax))
      s.n_probs = *n;
  }
  if (const auto n = body.Integer("n_probs", 0, limits::kAlternativesMax)) s.n_probs = *n;
  s.n_probs = std::min(s.n_probs, static_cast<int64_t>(seat.tokenizer->size()));
  s.post_sampling_probs = body.Bool("post_sampling_probs").value_or(s.post_sampling_probs);
  ReadInteger(body, "min_keep", s.min_keep);
  s.ignore_eos = body.Bool("ignore_eos").value_or(s.ignore_eos);
  ReadLogitBias(body, *seat.tokenizer, s.logit_bias);
  ReadSamplers(body, s);
  return s;
}

int32_t ReadPredict(const Fields& body) {
  for (std::string_view name : {"n_predict", "max_completion_tokens", "max_tokens"}) {
    if (const auto n = body.Integer(name, -1)) {
      return static_cast<int32_t>(std::min(*n, kInt32Max));
    }
  }
  return -1;
}

std::vector<std::string> ReadStop(const Fields& body, const ServeSettings& settings) {
  std::vector<std::string> stop;
  if (const rapidjson::Value* value = body.Find("stop")) {
    if (value->IsString()) {
      stop.emplace_back(StringOf(*value));
    } else if (value->IsArray()) {
      stop = *body.Strings("stop");
    } else {
      RefuseField("stop", "expected a string or an array of strings");
    }
  }
  std::erase(stop, "");
  return stop.empty() ? settings.stop : stop;
}

// The native name and the two others that clients use.
int32_t ReadReasoningTokens(const Fields& body, const ServeSettings& settings) {
  for (std::string_view name :
       {"reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget"}) {
    if (const auto n = body.Integer(name, -1)) {
      return static_cast<int32_t>(std::min(*n, kInt32Max));
    }
  }
  return settings.reasoning_budget;
}

// Tags are the model's where the request names none. A model that has none thinks without a limit.
text::ReasoningLimit ReadReasoningLimit(const Fields& body, const ServeSettings& settings,
                                        const Seat& seat) {
  const chat::ReasoningMarks& marks = seat.chat_template->marks();
  text::ReasoningLimit limit;
  limit.tokens = ReadReasoningTokens(body, settings);
  limit.open = body.String("reasoning_budget_start_tag").value_or(marks.open);
  if (const auto tag = body.String("reasoning_budget_end_tag")) limit.closes = {*tag};
  if (auto tags = body.Strings("reasoning_budget_end_tags")) limit.closes = std::move(*tags);
  std::erase(limit.closes, "");
  if (limit.closes.empty() && !marks.close.empty()) limit.closes = {marks.close};
  const auto own_message = body.String("reasoning_budget_message");
  if (own_message && own_message->size() > limits::kStopStringBytesMax) {
    RefuseField("reasoning_budget_message",
                "may have " + std::to_string(limits::kStopStringBytesMax) + " bytes at most");
  }
  std::string message = own_message.value_or(settings.reasoning_budget_message);
  if (body.Bool("reasoning_control").value_or(false)) {
    limit.stop = std::make_shared<std::atomic<bool>>(false);
    if (limit.tokens < 0) limit.tokens = static_cast<int32_t>(kInt32Max);
  }
  if (limit.tokens < 0 || limit.closes.empty()) return {};
  limit.closes.push_back(limit.open);  // checked with them
  for (const std::string& tag : limit.closes) {
    if (tag.size() > limits::kStopStringBytesMax || limit.closes.size() > limits::kStopStringsMax) {
      RefuseField("reasoning_budget_end_tags", "too many or too long tags");
    }
  }
  limit.closes.pop_back();
  const text::TextRange plain{0, message.size()};
  message += limit.closes.front();
  limit.ending = seat.tokenizer->Tokenise(
      message,
      {.parse_special = true, .plain = std::span(&plain, plain.begin == plain.end ? 0U : 1U)});
  return limit;
}

int32_t ReadChoices(const Fields& body, int32_t slots) {
  for (std::string_view name : {"n_cmpl", "n"}) {
    if (const auto n = body.Integer(name, 1)) {
      if (*n > slots) {
        RefuseField(name, "must be at most " + std::to_string(slots) + ", the number of slots");
      }
      return static_cast<int32_t>(*n);
    }
  }
  return 1;
}

AnswerOptions ReadAnswer(const Fields& body, const ServeSettings& settings) {
  AnswerOptions answer;
  answer.stream = body.Bool("stream").value_or(false);
  if (const rapidjson::Value* options = body.Object("stream_options")) {
    answer.include_usage = Fields(*options, "stream_options").Bool("include_usage").value_or(false);
  }
  answer.return_tokens = body.Bool("return_tokens").value_or(false);
  answer.return_progress = body.Bool("return_progress").value_or(false);
  answer.timings_per_token = body.Bool("timings_per_token").value_or(false);
  answer.verbose = body.Bool("verbose").value_or(false);
  answer.ping_s =
      static_cast<int>(body.Integer("sse_ping_interval", -1, 86400).value_or(settings.sse_ping_s));
  if (auto fields = body.Strings("response_fields")) answer.response_fields = std::move(*fields);
  return answer;
}

// Of what is sure to be tokenised in no time all tokens are counted, for the error.
size_t PromptTokensMax(size_t bytes, const Seat& seat) {
  if (bytes <= limits::kSmallBodyBytesMax) return SIZE_MAX;
  return static_cast<size_t>(seat.engine->limits().slot_context);
}

std::vector<text::TokenId> Fitting(std::vector<text::TokenId> ids, size_t tokens_max,
                                   const Seat& seat) {
  if (ids.size() <= tokens_max) return ids;
  throw engine::ContextError(ids.size(), seat.engine->limits().slot_context,
                             engine::ContextError::Counted::kAtLeast);
}

std::vector<text::TokenId> TokenisePrompt(const rapidjson::Value& value, std::string_view field,
                                          const Seat& seat) {
  size_t bytes = value.IsString() ? value.GetStringLength() : 0;
  if (value.IsArray()) {
    for (const auto& item : value.GetArray()) {
      if (item.IsString()) bytes += item.GetStringLength();
    }
  }
  const size_t most = PromptTokensMax(bytes, seat);
  return Fitting(TokeniseMixed(value, field, *seat.tokenizer,
                               {.add_special = true, .parse_special = true, .tokens_max = most}),
                 most, seat);
}

std::vector<text::TokenId> ReadOnePrompt(const rapidjson::Value& value, const Seat& seat) {
  std::vector<text::TokenId> ids;
  if (value.IsObject()) {
    const Fields fields(value, "Field 'prompt'");
    const rapidjson::Value* media = fields.Find("multimodal_data");
    if (media != nullptr && !Empty(*media)) {
      RefuseField("multimodal_data", kNoVision);
    }
    const rapidjson::Value* prompt = fields.Find("prompt_string");
    if (prompt == nullptr || !prompt->IsString()) {
      RefuseField("prompt_string", "expected a string");
    }
    ids = TokenisePrompt(*prompt, "prompt_string", seat);
  } else {
    ids = TokenisePrompt(value, "prompt", seat);
  }
  if (ids.empty()) RefuseField("prompt", "the prompt is empty");
  return ids;
}

// [ids] and [ids and strings] are one prompt; any other array is a list of prompts.
bool IsOnePrompt(const rapidjson::Value& array) {
  bool number = false;
  for (const auto& item : array.GetArray()) {
    if (item.IsNumber()) {
      number = true;
    } else if (!item.IsString()) {
      return false;
    }
  }
  return number;
}

}  // namespace

void PlaceInReasoning(std::string_view prompt, text::ReasoningLimit& limit) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  prompt = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  limit.starts_inside = !limit.open.empty() && prompt.ends_with(limit.open);
  if (std::ranges::any_of(limit.closes,
                          [&](const std::string& close) { return prompt.ends_with(close); })) {
    limit.tokens = -1;
  }
}

std::vector<text::TokenId> TokeniseMixed(const rapidjson::Value& value, std::string_view field,
                                         const text::Tokenizer& tokenizer,
                                         const text::TokeniseOptions& options) {
  if (value.IsString()) return tokenizer.Tokenise(StringOf(value), options);
  if (!value.IsArray()) RefuseField(field, "expected a string or an array of strings and ids");
  std::vector<text::TokenId> ids;
  text::TokeniseOptions part_options = options;
  for (const auto& item : value.GetArray()) {
    if (ids.size() > options.tokens_max) break;
    if (item.IsString()) {
      part_options.tokens_max = options.tokens_max - ids.size();
      const auto part = tokenizer.Tokenise(StringOf(item), part_options);
      ids.insert(ids.end(), part.begin(), part.end());
    } else {
      const auto id = IntegerOf(item);
      if (!id) RefuseField(field, "expected strings and token ids");
      if (*id < 0 || *id >= static_cast<int64_t>(tokenizer.size())) {
        RefuseField(field, "token id " + std::to_string(*id) + " is outside the vocabulary of " +
                               std::to_string(tokenizer.size()));
      }
      ids.push_back(static_cast<text::TokenId>(*id));
    }
    part_options.add_special = false;
  }
  return ids;
}

std::vector<text::TokenId> TokenisePrompt(std::string_view text, text::TokeniseOptions options,
                                          const Seat& seat) {
  options.tokens_max = PromptTokensMax(text.size(), seat);
  return Fitting(seat.tokenizer->Tokenise(text, options), options.tokens_max, seat);
}

std::vector<std::vector<text::TokenId>> ReadPrompts(const Fields& body, const Seat& seat) {
  const rapidjson::Value* prompt = body.Find("prompt");
  if (prompt == nullptr) RefuseField("prompt", "is required");
  std::vector<std::vector<text::TokenId>> prompts;
  if (!prompt->IsArray() || IsOnePrompt(*prompt)) {
    prompts.push_back(ReadOnePrompt(*prompt, seat));
    return prompts;
  }
  if (prompt->Empty()) RefuseField("prompt", "the prompt is empty");
  if (prompt->Size() > limits::kPromptsMax) {
    RefuseField("prompt", "at most " + std::to_string(limits::kPromptsMax) + " prompts a request");
  }
  for (const auto& item : prompt->GetArray()) prompts.push_back(ReadOnePrompt(item, seat));
  return prompts;
}

GenerationFields ReadGenerationFields(const Fields& body, const ServeSettings& settings,
                                      const Seat& seat, std::string_view probabilities_alias) {
  RefuseUnsupported(body);
  chat::ParseReasoningFormat(  // of use to chats alone; a wrong one is refused everywhere
      body.String("reasoning_format").value_or(settings.reasoning_format));
  GenerationFields fields;
  fields.answer = ReadAnswer(body, settings);
  engine::GenerateRequest& request = fields.request;
  request.sampling = ReadSampling(body, settings, seat, probabilities_alias);
  request.n_predict = ReadPredict(body);
  request.stop = ReadStop(body, settings);
  request.stop.insert(request.stop.end(), seat.chat.stop_texts.begin(), seat.chat.stop_texts.end());
  request.reasoning = ReadReasoningLimit(body, settings, seat);
  request.choices = ReadChoices(body, seat.engine->limits().slots);
  request.cache_prompt = body.Bool("cache_prompt").value_or(settings.cache_prompt);
  request.id_slot = static_cast<int32_t>(body.Integer("id_slot", -1, kInt32Max).value_or(-1));
  if (const int32_t slots = seat.engine->limits().slots; request.id_slot >= slots) {
    RefuseField("id_slot", "there are " + std::to_string(slots) + " slots, numbered from 0");
  }
  request.return_progress = fields.answer.return_progress && fields.answer.stream;
  const bool chat = probabilities_alias.empty();
  fields.form = ReadOutputForm(body, settings, *seat.tokenizer, chat);
  request.preserved_tokens = fields.form.options.preserved_tokens;
  if (!chat) request.grammar = CompileOutputForm(fields.form, seat);
  request.show_special = settings.special;
  request.n_indent = static_cast<int32_t>(body.Integer("n_indent", 0, kInt32Max).value_or(0));
  request.t_max_predict_ms = std::max<int64_t>(0, body.Integer("t_max_predict_ms", -1).value_or(0));
  request.n_keep = static_cast<int32_t>(body.Integer("n_keep", -1, kInt32Max).value_or(0));
  request.n_discard = static_cast<int32_t>(body.Integer("n_discard", 0, kInt32Max).value_or(0));
  return fields;
}

std::string UnknownFields(const rapidjson::Value& body) {
  constexpr size_t kNamesMax = 8;
  std::string names;
  size_t count = 0;
  for (const auto& member : body.GetObject()) {
    const std::string_view name = StringOf(member.name);
    // A wish about speed, and none that is fulfilled: a state is never moved to other positions.
    const bool no_use = name == "n_cache_reuse" && IntegerOf(member.value).value_or(0) > 0;
    if (!no_use && std::find(std::begin(kKnownFields), std::end(kKnownFields), name) !=
                       std::end(kKnownFields)) {
      continue;
    }
    if (++count > kNamesMax) return names + ", …";
    if (!names.empty()) names += ", ";
    names += Printable(name);
  }
  return names;
}

Json GenerationSettings(const engine::GenerateRequest& request, const AnswerOptions& answer) {
  const text::SamplingParams& s = request.sampling;
  Json breakers = Json::Array();
  for (const std::string& text : s.dry_sequence_breakers) breakers.Append(text);
  Json stop = Json::Array();
  for (const std::string& text : request.stop) stop.Append(text);
  Json samplers = Json::Array();
  for (text::SamplerStage stage : s.samplers) samplers.Append(text::SamplerStageName(stage));
  Json biases = Json::Array();
  for (const text::LogitBias& bias : s.logit_bias) {
    // A ban has no number in JSON: it is written as null.
    biases.Append(Json::Object({{"token", bias.token}, {"bias", static_cast<double>(bias.bias)}}));
  }
  return Json::Object({{"seed", s.seed},
                       {"temperature", s.temperature},
                       {"dynatemp_range", s.dynatemp_range},
                       {"dynatemp_exponent", s.dynatemp_exponent},
                       {"top_k", s.top_k},
                       {"top_p", s.top_p},
                       {"min_p", s.min_p},
                       {"top_n_sigma", s.top_n_sigma},
                       {"xtc_probability", s.xtc_probability},
                       {"xtc_threshold", s.xtc_threshold},
                       {"typical_p", s.typical_p},
                       {"repeat_last_n", s.repeat_last_n},
                       {"repeat_penalty", s.repeat_penalty},
                       {"presence_penalty", s.presence_penalty},
                       {"frequency_penalty", s.frequency_penalty},
                       {"dry_multiplier", s.dry_multiplier},
                       {"dry_base", s.dry_base},
                       {"dry_allowed_length", s.dry_allowed_length},
                       {"dry_penalty_last_n", s.dry_penalty_last_n},
                       {"dry_sequence_breakers", std::move(breakers)},
                       {"mirostat", s.mirostat},
                       {"mirostat_tau", s.mirostat_tau},
                       {"mirostat_eta", s.mirostat_eta},
                       {"adaptive_target", s.adaptive_target},
                       {"adaptive_decay", s.adaptive_decay},
                       {"stop", std::move(stop)},
                       {"n_predict", request.n_predict},
                       {"max_tokens", request.n_predict},
                       {"n_keep", request.n_keep},
                       {"n_discard", request.n_discard},
                       {"ignore_eos", s.ignore_eos},
                       {"stream", answer.stream},
                       {"logit_bias", std::move(biases)},
                       {"n_probs", s.n_probs},
                       {"min_keep", s.min_keep},
                       {"post_sampling_probs", s.post_sampling_probs},
                       {"reasoning_budget_tokens",
                        request.reasoning.tokens == kInt32Max ? -1 : request.reasoning.tokens},
                       {"grammar", request.grammar ? request.grammar->source() : ""},
                       {"grammar_lazy", request.grammar && request.grammar->lazy()},
                       {"samplers", std::move(samplers)},
                       {"timings_per_token", answer.timings_per_token},
                       {"cache_prompt", request.cache_prompt}});
}

}  // namespace bloomery::serve

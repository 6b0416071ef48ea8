// /health, /v1/models, /props, /slots: what the server is and does.
#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/serve/dialect.h"
#include "runtime/serve/errors.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/serve/routes.h"
#include "runtime/serve/template_facts.h"

namespace bloomery::serve {
namespace {

Json StringsJson(const std::vector<std::string>& strings) {
  Json json = Json::Array();
  for (const std::string& text : strings) json.Append(text);
  return json;
}

std::vector<std::string> SortedAliases(const ServeSettings& settings) {
  std::vector<std::string> aliases = settings.aliases;
  std::sort(aliases.begin(), aliases.end());
  aliases.erase(std::unique(aliases.begin(), aliases.end()), aliases.end());
  return aliases;
}

// A request that says nothing, for the default settings.
engine::GenerateRequest DefaultRequest(const ServeSettings& settings) {
  engine::GenerateRequest request;
  request.sampling = settings.sampling;
  request.n_predict = settings.n_predict;
  request.stop = settings.stop;
  request.cache_prompt = settings.cache_prompt;
  return request;
}

Json DraftJson(const engine::DraftOptions& draft) {
  if (draft.kind == engine::DraftKind::kOff) return Json::Object({{"kind", "off"}});
  return Json::Object({{"kind", engine::DraftKindName(draft.kind)},
                       {"tokens_max", draft.tokens_max},
                       {"tokens_min", draft.tokens_min},
                       {"p_min", draft.p_min}});
}

// What was asked of residency and what it has done; `policy` null where nothing can move.
Json ResidencyJson(const Seat& seat, const ServeSettings& settings) {
  exec::ResidencyStatus status;
  if (seat.residency_status) status = seat.residency_status();
  const memory::ResidencyCounters& counters = status.counters;
  return Json::Object(
      {{"asked", std::string(memory::NameOf(settings.residency))},
       {"policy", status.policy ? Json(std::string(memory::NameOf(*status.policy))) : Json()},
       {"picks", counters.picks},
       {"hits", counters.hits},
       {"moves", counters.moves},
       {"resets", counters.resets},
       {"stopped", status.stopped.empty() ? Json() : Json(status.stopped)},
       {"routing_trace", status.trace.empty() ? Json() : Json(status.trace)}});
}

Json EngineJson(const Seat& seat, const ServeSettings& settings) {
  const ModelInfo& model = seat.model;
  const chat::ReasoningMarks& marks = seat.chat_template->marks();
  Json reasoning =
      marks.open.empty() ? Json() : Json::Object({{"open", marks.open}, {"close", marks.close}});
  Json chat = Json::Object(
      {{"template", TemplateOrigin(*seat.chat_template, !settings.chat_template.empty())},
       {"reasoning_marks", std::move(reasoning)},
       {"tool_syntax", seat.chat.tool_syntax},
       {"stop_texts", StringsJson(seat.chat.stop_texts)},
       {"recommended_sampling", seat.chat.recommended_sampling}});
  return Json::Object({{"name", "bloomery"},
                       {"version", BLOOMERY_VERSION},
                       {"plugin", model.plugin},
                       {"model", Json::Object({{"format", "gguf"},
                                               {"arch", model.architecture},
                                               {"quant", model.ftype},
                                               {"bytes", model.bytes},
                                               {"n_layers", model.layers},
                                               {"n_experts", model.experts},
                                               {"n_experts_used", model.experts_used},
                                               {"ctx_train", model.context_trained}})},
                       {"context", Json::Object({{"slot", seat.engine->limits().slot_context},
                                                 {"trained", model.context_trained},
                                                 {"asked", settings.context}})},
                       {"chat", std::move(chat)},
                       {"draft", DraftJson(seat.engine->options().draft)},
                       {"kernels", seat.kernels},
                       {"residency", ResidencyJson(seat, settings)},
                       {"devices", seat.devices},
                       {"inexact_operators", StringsJson(seat.inexact_operators)}});
}

Json SlotJson(const engine::SlotInfo& slot, bool speculative) {
  Json json = Json::Object({{"id", slot.id},
                            {"n_ctx", slot.n_ctx},
                            {"speculative", speculative},
                            {"is_processing", slot.is_processing}});
  if (slot.request == nullptr) return json;
  Json next = Json::Object({{"has_next_token", slot.has_next_token},
                            {"has_new_line", slot.has_new_line},
                            {"n_remain", slot.n_remain},
                            {"n_decoded", slot.n_decoded}});
  json.Set("id_task", slot.id_task);
  json.Set("n_prompt_tokens", slot.n_prompt_tokens);
  json.Set("n_prompt_tokens_processed", slot.n_prompt_tokens_processed);
  json.Set("n_prompt_tokens_cache", slot.n_prompt_tokens_cache);
  json.Set("params", GenerationSettings(*slot.request, {}));
  json.Set("next_token", Json::Array({std::move(next)}));
  return json;
}

}  // namespace

std::string ModelId(const RouteContext& context) {
  const auto aliases = SortedAliases(context.settings);
  return aliases.empty() ? context.seat.model.name : aliases.front();
}

namespace {

Json ModelEntry(const RouteContext& context) {
  const ModelInfo& model = context.seat.model;
  const int32_t n_ctx = context.seat.engine->limits().slot_context;
  return Json::Object(
      {{"id", ModelId(context)},
       {"aliases", StringsJson(SortedAliases(context.settings))},
       {"tags", StringsJson(context.settings.tags)},
       {"object", "model"},
       {"created", model.created},
       {"owned_by", "bloomery"},
       {"max_model_len", n_ctx},
       {"architecture", Json::Object({{"input_modalities", Json::Array({"text"})},
                                      {"output_modalities", Json::Array({"text"})}})},
       {"meta", Json::Object({{"vocab_type", 2},  // llama-server's number for byte-level BPE
                              {"n_vocab", context.seat.tokenizer->size()},
                              {"n_ctx", n_ctx},
                              {"n_ctx_train", model.context_trained},
                              {"n_embd", model.embedding_width},
                              {"n_params", model.parameters},
                              {"size", model.bytes},
                              {"ftype", model.ftype}})}});
}

// The one of /v1/models/ID.
void ReplyModel(const RouteContext& context, std::string_view id) {
  const auto& aliases = context.settings.aliases;
  if (id == ModelId(context) || std::ranges::find(aliases, id) != aliases.end()) {
    return ReplyJson(context, ModelEntry(context));
  }
  context.exchange->Reply(ErrorResponse(
      MakeApiError(404, "there is no model '" + Printable(id) + "'; it is " + ModelId(context))));
}

}  // namespace

void HandleHealth(const RouteContext& context) {
  if (const auto failure = context.seat.engine->failure()) {
    // The reason may name what clients must not see; the log has it.
    Json body = ErrorJson(MakeApiError(503, "the engine has failed"));
    body.Set("status", "error");
    HttpResponse response;
    response.status = 503;
    response.body = body.Text();
    return context.exchange->Reply(std::move(response));
  }
  ReplyJson(context, Json::Object({{"status", "ok"}}));
}

void HandleModels(const RouteContext& context) {
  const std::string_view path = context.exchange->request().path;
  constexpr std::string_view kFolder = "/models/";
  if (const size_t at = path.find(kFolder, context.settings.api_prefix.size());
      at != std::string_view::npos) {
    return ReplyModel(context, path.substr(at + kFolder.size()));
  }
  Json entry = ModelEntry(context);
  Json details = Json::Object({{"parent_model", ""},
                               {"format", "gguf"},
                               {"family", ""},
                               {"families", Json::Array({""})},
                               {"parameter_size", ""},
                               {"quantization_level", ""}});
  Json twin = Json::Object({{"name", ModelId(context)},
                            {"model", ModelId(context)},
                            {"modified_at", ""},
                            {"size", ""},
                            {"digest", ""},
                            {"type", "model"},
                            {"description", ""},
                            {"tags", Json::Array({""})},
                            {"capabilities", Json::Array({"completion"})},
                            {"parameters", ""},
                            {"details", std::move(details)}});
  ReplyJson(context, Json::Object({{"models", Json::Array({std::move(twin)})},
                                   {"object", "list"},
                                   {"data", Json::Array({std::move(entry)})}}));
}

void HandleProps(const RouteContext& context) {
  const Seat& seat = context.seat;
  const ServeSettings& settings = context.settings;
  const exec::SeatLimits& limits = seat.engine->limits();
  const text::SpecialIds& special = seat.tokenizer->special_ids();
  Json defaults = Json::Object({{"params", GenerationSettings(DefaultRequest(settings), {})},
                                {"n_ctx", limits.slot_context}});
  Json props = Json::Object(
      {{"default_generation_settings", std::move(defaults)},
       {"total_slots", limits.slots},
       {"model_alias", ModelId(context)},
       {"model_name", seat.model.name},
       {"model_ftype", seat.model.ftype},
       {"model_path", seat.model.path},
       {"modalities", Json::Object({{"vision", false}, {"video", false}, {"audio", false}})},
       {"media_marker", nullptr},  // a prompt has no place for media
       {"endpoint_slots", settings.slots_route},
       {"endpoint_props", settings.props_writable},
       {"endpoint_metrics", true},
       {"ui", settings.page},
       {"ui_settings",
        settings.ui_config.empty() ? Json::Object() : Json::Written(settings.ui_config)},
       {"chat_template", seat.chat_template->source()},
       {"chat_template_caps", CapsJson(seat.chat_template->caps())},
       {"bos_token", seat.tokenizer->SpecialPiece(special.bos)},
       {"eos_token", seat.tokenizer->SpecialPiece(special.eos)},
       {"build_info", BuildName()},
       {"is_sleeping", false},
       {"cors_proxy_enabled", false},
       {"engine", EngineJson(seat, settings)}});
  if (const std::string& tools = seat.chat_template->tool_use_source(); !tools.empty()) {
    props.Set("chat_template_tool_use", tools);
  }
  ReplyJson(context, props);
}

void HandleSetProps(const RouteContext& context) {
  if (!context.settings.props_writable) {
    throw Error(ErrorKind::kUnsupported, "POST /props is switched off; start with --props");
  }
  ParseJson(context.exchange->request().body, "request body");
  ReplyJson(context, Json::Object({{"success", true}}));
}

void HandleSlots(const RouteContext& context) {
  if (!context.settings.slots_route) {
    throw Error(ErrorKind::kUnsupported, "/slots is switched off; start without --no-slots");
  }
  const auto slots = context.seat.engine->SlotsSnapshot();
  const bool all_busy = std::all_of(slots.begin(), slots.end(),
                                    [](const engine::SlotInfo& s) { return s.is_processing; });
  const auto fail = context.exchange->request().Query("fail_on_no_slot");
  if (fail && *fail != "0" && all_busy) {
    throw Error(ErrorKind::kUnavailable, "no slot available");
  }
  const bool speculative = context.seat.engine->options().draft.kind != engine::DraftKind::kOff;
  Json json = Json::Array();
  for (const engine::SlotInfo& slot : slots) {
    json.Append(Json::Written(SlotJson(slot, speculative).Text()));
  }
  ReplyJson(context, json);
}

}  // namespace bloomery::serve

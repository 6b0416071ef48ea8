// GET /residency: memory by tier and class, and how many rows each expert has had; GET /metrics.
#include "runtime/base/error.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {
namespace {

uint64_t AddClasses(const std::vector<memory::PlanTerm>& terms, bool mapped, Json& classes) {
  uint64_t sum = 0;
  for (const memory::PlanTerm& term : terms) {
    classes.Append(Json::Object({{"name", term.name}, {"bytes", term.bytes}, {"mapped", mapped}}));
    sum += term.bytes;
  }
  return sum;
}

Json TierJson(const exec::MemoryTier& tier) {
  Json classes = Json::Array();
  const uint64_t used = AddClasses(tier.classes, false, classes);
  AddClasses(tier.mapped, true, classes);
  return Json::Object({{"name", tier.name},
                       {"device", tier.device},
                       {"used_bytes", used},
                       {"limit_bytes", tier.limit_bytes > 0 ? Json(tier.limit_bytes) : Json()},
                       {"classes", std::move(classes)}});
}

// Members of /residency that say how experts moved; null where nothing can.
Json MovesJson(const exec::ResidencyStatus& status) {
  if (!status.policy) return {};
  const memory::ResidencyCounters& counters = status.counters;
  return Json::Object({{"policy", std::string(memory::NameOf(*status.policy))},
                       {"moves_max", status.moves_max},
                       {"host_us", status.rates.host_us},
                       {"card_us", status.rates.card_us},
                       {"begin_us", status.rates.begin_us},
                       {"copy_us", status.rates.copy_us},
                       {"rows", counters.rows},
                       {"picks", counters.picks},
                       {"hits", counters.hits},
                       {"moves", counters.moves},
                       {"moves_failed", counters.moves_failed},
                       {"resets", counters.resets},
                       {"stopped", status.stopped.empty() ? Json() : Json(status.stopped)}});
}

Json TimesJson(const exec::PassTimes& times) {
  return Json::Object({{"passes", times.passes},
                       {"rows", times.rows},
                       {"card_seconds", times.card_seconds()},
                       {"host_seconds", times.host_seconds},
                       {"link_seconds", times.link_seconds},
                       {"sync_seconds", times.sync_seconds}});
}

Json TraceJson(const exec::ResidencyStatus& status) {
  if (status.trace.empty()) return {};
  return Json::Object(
      {{"file", status.trace}, {"passes", status.trace_passes}, {"ended", status.trace_full}});
}

Json BankJson(const exec::BankPicks& bank, const memory::BankResidency* moved) {
  Json picks;
  if (!bank.picks.empty()) {
    picks = Json::Array();
    for (const uint64_t rows : bank.picks) picks.Append(rows);
  }
  return Json::Object({{"layer", bank.layer},
                       {"tier", bank.tier},
                       {"experts", bank.experts},
                       {"used", bank.used},
                       {"frames", bank.frames < 0 ? Json() : Json(bank.frames)},
                       {"picks", moved == nullptr ? Json() : Json(moved->picks)},
                       {"hits", moved == nullptr ? Json() : Json(moved->hits)},
                       {"moves", moved == nullptr ? Json() : Json(moved->moves)},
                       {"rows", std::move(picks)}});
}

}  // namespace

void HandleMetrics(const RouteContext& context) {
  const engine::Engine& engine = *context.seat.engine;
  const exec::SeatLimits& limits = engine.limits();
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4";
  response.headers.push_back(
      {"Process-Start-Time-Unix", std::to_string(context.metrics.started())});
  response.body =
      context.metrics.Next(engine.ReadMetrics(), int64_t{limits.slots} * limits.slot_context);
  if (context.seat.residency && context.seat.residency_status) {
    response.body += ResidencyMetrics(context.seat.residency(), context.seat.residency_status());
  }
  context.exchange->Reply(std::move(response));
}

void HandleResidency(const RouteContext& context) {
  if (!context.seat.residency) {
    throw Error(ErrorKind::kUnsupported, "/residency: this seat does not tell where its memory is");
  }
  const exec::Residency residency = context.seat.residency();
  exec::ResidencyStatus status;
  if (context.seat.residency_status) status = context.seat.residency_status();
  Json tiers = Json::Array();
  for (const exec::MemoryTier& tier : residency.tiers) tiers.Append(TierJson(tier));
  Json banks = Json::Array();
  bool counted = !residency.banks.empty();
  for (size_t i = 0; i < residency.banks.size(); ++i) {
    const exec::BankPicks& bank = residency.banks[i];
    const bool moves = status.policy && i < status.counters.banks.size();
    counted = counted && !bank.picks.empty();
    banks.Append(BankJson(bank, moves ? &status.counters.banks[i] : nullptr));
  }
  ReplyJson(context, Json::Object({{"tiers", std::move(tiers)},
                                   {"residency", MovesJson(status)},
                                   {"times", TimesJson(status.times)},
                                   {"trace", TraceJson(status)},
                                   {"rows_counted", counted},
                                   {"banks", std::move(banks)}}));
}

// Counts are forgotten and the first experts of every bank come back before the next pass.
void HandleResetResidency(const RouteContext& context) {
  if (!context.seat.reset_residency) {
    throw Error(ErrorKind::kUnsupported, "there is no residency to reset on this seat");
  }
  context.seat.reset_residency();
  ReplyJson(context, Json::Object({{"success", true}}));
}

}  // namespace bloomery::serve

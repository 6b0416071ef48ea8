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

Json BankJson(const exec::BankPicks& bank) {
  Json picks;
  if (!bank.picks.empty()) {
    picks = Json::Array();
    for (const uint64_t rows : bank.picks) picks.Append(rows);
  }
  return Json::Object({{"layer", bank.layer},
                       {"tier", bank.tier},
                       {"experts", bank.experts},
                       {"used", bank.used},
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
  context.exchange->Reply(std::move(response));
}

void HandleResidency(const RouteContext& context) {
  if (!context.seat.residency) {
    throw Error(ErrorKind::kUnsupported, "/residency: this seat does not tell where its memory is");
  }
  const exec::Residency residency = context.seat.residency();
  Json tiers = Json::Array();
  for (const exec::MemoryTier& tier : residency.tiers) tiers.Append(TierJson(tier));
  Json banks = Json::Array();
  bool counted = !residency.banks.empty();
  for (const exec::BankPicks& bank : residency.banks) {
    counted = counted && !bank.picks.empty();
    banks.Append(BankJson(bank));
  }
  ReplyJson(context, Json::Object({{"tiers", std::move(tiers)},
                                   {"rows_counted", counted},
                                   {"banks", std::move(banks)}}));
}

}  // namespace bloomery::serve

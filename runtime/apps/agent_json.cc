#include "runtime/apps/agent_json.h"

#include <utility>

#include "runtime/base/error.h"

namespace bloomery::apps {
namespace {

using serve::Json;

Json TermsJson(const std::vector<memory::PlanTerm>& terms) {
  Json json = Json::Object();
  for (const memory::PlanTerm& term : terms) json.Set(term.name, term.bytes);
  return json;
}

void SetNumbers(const memory::MemoryPlan& plan, Json& json) {
  const std::string source = plan.limit_source();
  json.Set("free", source.empty() ? Json() : Json(plan.limit()));
  json.Set("free_source", source);
  json.Set("need", plan.total());
  json.Set("fits", plan.Fits());
  json.Set("terms", TermsJson(plan.terms()));
  json.Set("mapped", TermsJson(plan.mapped()));
}

}  // namespace

EventLines::EventLines(std::ostream& out, bool enabled)
    : out_(out), enabled_(enabled), start_(std::chrono::steady_clock::now()) {}

void EventLines::Write(std::string_view event, std::vector<serve::Json::Member> fields) {
  if (!enabled_) return;
  const auto passed = std::chrono::steady_clock::now() - start_;
  Json line = Json::Object(
      {{"event", event},
       {"t_ms", int64_t{std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()}}});
  for (auto& [name, value] : fields) line.Set(std::move(name), std::move(value));
  const std::string text = line.Text() + "\n";
  std::lock_guard lock(mutex_);
  out_ << text << std::flush;
}

serve::Json HostPlanJson(const memory::MemoryPlan& plan) {
  Json json = Json::Object({{"device", "host"}});
  SetNumbers(plan, json);
  return json;
}

serve::Json StageJson(const memory::PlacedStage& stage) {
  Json json = Json::Object({{"device", "card"},
                            {"id", stage.device},
                            {"layers", Json::Array({stage.layers.first, stage.layers.end})}});
  SetNumbers(stage.plan, json);
  return json;
}

serve::Json PlansJson(const memory::Placement& placement) {
  Json plans = Json::Array();
  for (const memory::PlacedStage& stage : placement.stages) plans.Append(StageJson(stage));
  plans.Append(HostPlanJson(placement.host));
  return plans;
}

std::string NextCommand(const std::exception& error, ExitCode code) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known != nullptr && !known->next().empty()) return known->next();
  return std::string(ExitRowOf(code).next);
}

std::vector<serve::Json::Member> ErrorFields(const std::exception& error, ExitCode code) {
  return {{"name", ExitRowOf(code).name},
          {"code", static_cast<int>(code)},
          {"message", error.what()},
          {"next", NextCommand(error, code)}};
}

void WriteHubEvent(const hub::HubEvent& event, EventLines& lines) {
  using Kind = hub::HubEvent::Kind;
  switch (event.kind) {
    case Kind::kSet:
      return lines.Write("hf_set", {{"set", event.name},
                                    {"bytes", event.bytes},
                                    {"have", event.have},
                                    {"from", event.text}});
    case Kind::kFile:
      return lines.Write("hf_file", {{"file", event.name},
                                     {"bytes", event.bytes},
                                     {"have", event.have},
                                     {"state", event.state}});
    case Kind::kProgress:
      return lines.Write("hf_progress", {{"have", event.have}, {"of", event.bytes}});
    case Kind::kDone:
      return lines.Write("hf_done",
                         {{"file", event.name}, {"bytes", event.bytes}, {"digest", event.text}});
    case Kind::kRetry:
      return lines.Write("hf_retry",
                         {{"file", event.name}, {"have", event.have}, {"why", event.text}});
    case Kind::kWaiting:
      return lines.Write("hf_wait", {{"repo", event.name}});
    case Kind::kOffline:
      return lines.Write("hf_offline", {{"set", event.name}, {"why", event.text}});
  }
}

}  // namespace bloomery::apps

#include "runtime/apps/dry_run.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <utility>

#include "runtime/apps/folder/folder_model.h"
#include "runtime/apps/hub_models.h"
#include "runtime/apps/program.h"
#include "runtime/apps/rates.h"
#include "runtime/apps/recommend.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/output_check.h"
#include "runtime/base/terminal.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/host_memory.h"
#include "runtime/serve/grammar_fields.h"
#include "runtime/serve/server.h"
#include "runtime/serve/template_facts.h"
#include "runtime/state/disk_check.h"
#include "runtime/text/grammar/grammar.h"

namespace bloomery::apps {
namespace {

using serve::Json;

// Thrown when the plan is made and fits: nothing is loaded after it.
struct Planned {};

Json SettingsJson(const serve::ParsedFlags& parsed) {
  Json settings = Json::Object();
  for (const auto& [key, effective] : parsed.effective) {
    settings.Set(key, Json::Object({{"value", effective.value}, {"source", effective.source}}));
  }
  return settings;
}

Json FilesJson(const hub::Model& model) {
  Json files = Json::Array();
  for (const hub::ModelFileState& file : model.files) {
    files.Append(Json::Object({{"path", file.file.path},
                               {"bytes", file.file.bytes},
                               {"have", file.have},
                               {"state", file.state}}));
  }
  return files;
}

Json SlotsJson(const exec::SeatOptions& options) {
  Json slots = Json::Array();
  for (int32_t id = 0; id < options.slots; ++id) {
    slots.Append(Json::Object({{"id", id}, {"n_ctx", options.slot_context}}));
  }
  return slots;
}

// null where there are no drafts.
Json DraftJson(const engine::DraftOptions& draft) {
  if (draft.kind == engine::DraftKind::kOff || draft.tokens_max <= 0) return {};
  return Json::Object({{"kind", engine::DraftKindName(draft.kind)},
                       {"tokens_max", draft.tokens_max},
                       {"tokens_min", draft.tokens_min},
                       {"p_min", draft.p_min}});
}

// The document, filled as the run learns.
class Report {
 public:
  Report(const serve::ParsedFlags& parsed, std::optional<memory::MachineRates> rates)
      : parsed_(parsed), rates_(std::move(rates)) {}

  void Hub(const hub::Model& model) {
    model_.Set("name", model.name);
    model_.Set("repo", model.repo);
    model_.Set("files", FilesJson(model));
    model_.Set("bytes", model.bytes);
  }

  void Plan(const PlannedModel& planned) {
    plans_ = planned.placement.Plans();
    terms_ = PlansJson(planned.placement);
    line_ = planned.placement.Line();
    const serve::ModelInfo& info = planned.info;
    if (model_.Find("name") == nullptr) model_.Set("name", info.name);
    if (model_.Find("path") == nullptr) {
      model_.Set("path", info.path);
      model_.Set("arch", info.architecture);
      model_.Set("quant", info.ftype);
      model_.Set("n_layers", info.layers);
      model_.Set("n_experts", info.experts);
      model_.Set("n_experts_used", info.experts_used);
      model_.Set("ctx_train", info.context_trained);
    }
    Json experts = Json::Array();
    for (const uint32_t frames : planned.placement.frames) experts.Append(frames);
    Json devices = Json::Array();
    for (const memory::PlacedStage& stage : planned.placement.stages) {
      devices.Append(StageJson(stage));
    }
    plan_ = Json::Object({{"place", memory::NameOf(planned.placement.place)},
                          {"line", line_},
                          {"devices", std::move(devices)},
                          {"host", HostPlanJson(planned.placement.host)},
                          {"experts_on_card", std::move(experts)}});
    Predict(planned);
    slots_ = SlotsJson(planned.options);
    const chat::ChatTemplate& chat = *planned.text().chat_template;
    chat_ = Json::Object(
        {{"template", serve::TemplateOrigin(chat, !parsed_.settings.chat_template.empty())},
         {"caps", serve::CapsJson(chat.caps())},
         {"tool_format", planned.chat.tool_syntax},
         {"thinking", !chat.marks().open.empty()}});
  }

  // "predicted: …", or why nothing is.
  const std::string& prediction() const { return prediction_; }

  void Warn(std::string text) { warnings_.push_back(std::move(text)); }
  std::span<const memory::MemoryPlan> plans() const { return plans_; }
  const std::string& line() const { return line_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  Json Document(bool ok, std::vector<Json::Member> error) const {
    Json document = Json::Object({{"schema", 1}, {"ok", ok}});
    document.Set("model", model_);
    document.Set("settings", SettingsJson(parsed_));
    document.Set("plan", plan_);
    document.Set("slots", slots_);
    document.Set("chat", chat_);
    document.Set("mmproj", nullptr);
    document.Set("draft", DraftJson(parsed_.settings.draft));
    Json warnings = Json::Array();
    for (const std::string& warning : parsed_.warnings) warnings.Append(warning);
    for (const std::string& warning : warnings_) warnings.Append(warning);
    document.Set("warnings", std::move(warnings));
    if (!error.empty()) {
      error.emplace_back("terms", terms_);
      document.Set("error", Json::Object(std::move(error)));
    }
    return document;
  }

 private:
  void Predict(const PlannedModel& planned) {
    memory::Prediction of;
    if (rates_) of = memory::Predict(planned.placement, planned.work, *rates_, 0);
    prediction_ = memory::PredictionLine(of, 0);
    if (prediction_.empty()) {
      prediction_ = "nothing is predicted: bloomery doctor measures what it takes";
      return plan_.Set("predicted", nullptr);
    }
    const auto rate = [](double value) { return value > 0 ? Json(value) : Json(); };
    plan_.Set("predicted", Json::Object({{"decode", rate(of.decode)},
                                         {"decode_by", of.decode_by},
                                         {"prompt", rate(of.prompt)},
                                         {"prompt_by", of.prompt_by}}));
  }

  const serve::ParsedFlags& parsed_;
  std::optional<memory::MachineRates> rates_;
  std::string prediction_;
  Json model_ = Json::Object();
  Json plan_;
  Json slots_ = Json::Array();
  Json chat_;
  std::vector<std::string> warnings_;
  std::vector<memory::MemoryPlan> plans_;
  Json terms_ = Json::Array();  // of these
  std::string line_;            // of the plan, with every term
};

// The path to plan for; nothing where the weights are still at the hub.
std::optional<std::string> FindPath(const serve::ServeSettings& settings,
                                    const Installation& installation, Report& report) {
  if (settings.hf_repo.empty()) {
    return settings.model_path.empty() ? DemoModelPath(installation.executable)
                                       : settings.model_path;
  }
  const hub::HubOptions options = hub::OptionsFrom(Environment(), settings.hf_token);
  const hub::Model model = hub::Find(RequestOf(settings), options, [&](const hub::HubEvent& event) {
    report.Warn(event.name + ": from the cache: " + event.text);
  });
  report.Hub(model);
  if (model.Complete()) return model.path;
  uint64_t missing = model.bytes;
  for (const hub::ModelFileState& file : model.files) missing -= file.have;
  const uint64_t free = options.fetch.free_bytes(options.cache.root());
  if (missing > free) {
    throw Error(ErrorKind::kDownload, memory::FormatBytes(missing) + " are to be fetched, and " +
                                          options.cache.root() + " has " +
                                          memory::FormatBytes(free) + " free");
  }
  report.Warn("the weights are not here yet, so there is no plan: bloomery pull " +
              settings.hf_repo);
  return std::nullopt;
}

void Load(const serve::ServeSettings& settings, const std::string& path,
          const Installation& installation, Report& report) {
  LoadWatch watch;
  watch.planned = [&](const PlannedModel& planned) {
    report.Plan(planned);
    if (!settings.grammar.empty()) {
      const TextParts parts = planned.text();
      text::GrammarCompiler grammars(*parts.tokenizer);
      serve::Seat seat;
      seat.grammars = &grammars;
      serve::CheckGrammarDefault(settings, seat);
    }
    if (planned.placement.Fits()) throw Planned();
  };
  try {
    const ServedModel model(settings, path, installation.executable,
                            installation.plugin_path_variable, watch);
  } catch (const Planned&) {
    return;  // as far as a dry run goes
  }
}

}  // namespace

ExitCode CodeOf(const std::exception& error, std::span<const memory::MemoryPlan> plans) {
  const ExitCode code = ExitCodeOf(error);
  if (code != kExitPlan || plans.empty()) return code;
  const memory::MemoryPlan& host = plans.back();
  const bool shared = host.of() == memory::PlanOf::kHost && !host.Fits() &&
                      host.limit_source() == "MemAvailable" &&
                      host.total() <= memory::MachineMemory();
  return shared ? kExitBusy : code;
}

void CheckNamedPlaces(const serve::ServeSettings& settings) {
  for (const auto& [flag, folder] : {std::pair{"--slot-save-path", &settings.slot_save_path},
                                     {"--path", &settings.page_folder}}) {
    std::error_code error;
    if (folder->empty() || std::filesystem::is_directory(*folder, error)) continue;
    throw Error(ErrorKind::kUsage,
                std::string(flag) + ": there is no folder '" + Printable(*folder) + "'");
  }
  if (!settings.cache_disk.empty()) {
    if (settings.cache_ram_mib == 0) {
      throw Error(ErrorKind::kUsage,
                  "--cache-disk works behind the prompt cache in memory, which --cache-ram 0 gives "
                  "no room");
    }
    state::CheckDiskFolder(settings.cache_disk);
  }
  if (settings.routing_trace.empty()) return;
  try {
    CheckOutputFile(settings.routing_trace);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--routing-trace: ") + error.what(), kFlagsHelp);
  }
}

ExitCode DryRun(serve::ParsedFlags parsed, const Installation& installation, std::ostream& out,
                const std::string& program) {
  Report report(parsed, ReadRates(RatesPath(Environment()), RatesKey(LookAtMachine())));
  const bool json = parsed.settings.json;
  try {
    ReadNamedFiles(parsed.settings, RealFileSystem());
    ResolveModelName(parsed.settings, installation.executable, installation.plugin_path_variable);
    const auto path = FindPath(parsed.settings, installation, report);
    if (path) CheckModelPath(*path);
    CheckNamedPlaces(parsed.settings);
    // A start would end at the address and never plan; the plan is what was asked for.
    std::exception_ptr address;
    try {
      serve::HttpServer::Check(serve::Server::OptionsOf(parsed.settings));
    } catch (...) {
      address = std::current_exception();
    }
    try {
      if (path) Load(parsed.settings, *path, installation, report);
    } catch (...) {
      if (!address) throw;
    }
    if (address) std::rethrow_exception(address);
  } catch (const std::exception& error) {
    const ExitCode code = CodeOf(error, report.plans());
    if (json) out << report.Document(false, ErrorFields(error, code)).Text() << '\n';
    // Of an address that is taken the plan is there all the same; one that does not fit is the
    // error.
    if (!json && code == kExitBind && !report.line().empty()) {
      out << ForTerminal(report.line()) << ": it fits\n" << report.prediction() << '\n';
    }
    std::cerr << program << ": " << ForTerminal(error.what()) << '\n'
              << program << ": next: " << ForTerminal(NextCommand(error, code)) << std::endl;
    return code;
  }
  if (json) {
    out << report.Document(true, {}).Text() << '\n';
    return kExitOk;
  }
  for (const std::string& warning : report.warnings()) out << ForTerminal(warning) << '\n';
  if (report.line().empty()) return kExitOk;
  out << ForTerminal(report.line()) << ": it fits\n" << report.prediction() << '\n';
  return kExitOk;
}

}  // namespace bloomery::apps

#include "runtime/apps/tools/seat_flags.h"

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/apps/folder/folder_model.h"
#include "runtime/apps/program.h"
#include "runtime/apps/recommend.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/exec/load_modes.h"
#include "runtime/exec/trial_build.h"
#include "runtime/plugin/select.h"
#include "runtime/serve/flags.h"

namespace bloomery::apps {
namespace {

bl_dtype PlaneTypeOf(const char* flag, const std::string& name) {
  struct Type {
    const char* name;
    bl_dtype dtype;
  };
  static constexpr std::array kTypes{Type{"f32", BL_F32}, Type{"f16", BL_F16},
                                     Type{"q8_0", BL_Q8_0}};
  for (const Type& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  throw Error(ErrorKind::kUsage,
              std::string(flag) + " " + Printable(name) + ": must be f32, f16 or q8_0");
}

// Where the seat lies, by the server's own reading of the same flags.
void SetPlacing(const SeatFlags& flags, exec::SeatOptions& options) {
  serve::FlagSources sources{
      .arguments = {"--device", flags.device}, .environment = {}, .settings = {}};
  const auto give = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    sources.arguments.emplace_back(name);
    sources.arguments.push_back(value);
  };
  give("--tensor-split", flags.card_shares);
  give("--place", flags.place);
  give("--gpu-layers", flags.card_layers);
  give("--n-cpu-moe", flags.host_expert_layers);
  give("--card-budget", flags.card_budget);
  give("--host-budget", flags.host_budget);
  give("--residency", flags.residency);
  give("--routing-trace", flags.routing_trace);
  give("--delta-rule", flags.delta_rule);
  for (const std::string& rules : flags.tensor_rules) give("--override-tensor", rules);
  const serve::ServeSettings settings = serve::ParseFlags(sources).settings;
  options.placing = settings.placing;
  options.card_budget = settings.card_budget_bytes;
  options.host_budget = settings.host_budget_bytes;
  options.card_margin = settings.fit_margin_bytes;
  options.card_margins = settings.fit_margins_bytes;
  options.shares = settings.card_shares;
  options.residency.kind = settings.residency;
  options.residency.trace = settings.routing_trace;
  options.delta_chunks = settings.delta_chunks;
  options.device = settings.placing.card_layers == 0U ? "none" : settings.device;
}

}  // namespace

void AddSeatFlags(Arguments& arguments, SeatFlags& flags) {
  arguments
      .Text({"-m", "--model"}, "FILE",
            "the model: a file, a safetensors folder, or seedling; without it the demo model",
            &flags.model)
      .Texts({"--plugin-dir"}, "DIR", "where plugins are looked for first; may be repeated",
             &flags.plugin_dirs)
      .Number({"-ub", "--ubatch-size"}, "N", "rows that are computed at once", 1, 1 << 16,
              &flags.ubatch)
      .Number({"-b", "--batch-size"}, "N", "rows of one pass where several cards overlap", 1,
              1 << 16, &flags.batch)
      .Text({"--isa", "--kernels"}, "NAME", "kernels to run: auto, or an instruction set",
            &flags.kernels)
      .Text({"-dev", "--device"}, "LIST",
            "auto: a card, or all, the model whole or split, else the CPU; none; or cards, "
            "CUDA0,CUDA1",
            &flags.device)
      .Text({"-ts", "--tensor-split"}, "LIST", "shares of the layers, one a card, as 3,1",
            &flags.card_shares)
      .Text({"--place"}, "WHERE", "auto, card, split or host, as the server has it", &flags.place)
      .Text({"-ngl", "--gpu-layers"}, "N", "layers that may have experts on a card",
            &flags.card_layers)
      .Text({"-ncmoe", "--n-cpu-moe"}, "N", "layers whose experts stay with the host",
            &flags.host_expert_layers)
      .Texts({"-ot", "--override-tensor"}, "REGEX=PLACE", "where a layer's experts lie",
             &flags.tensor_rules)
      .Text({"--card-budget"}, "BYTES", "of each card's memory; KiB, MiB and GiB are known",
            &flags.card_budget)
      .Text({"--host-budget"}, "BYTES", "of the host's memory", &flags.host_budget)
      .Text({"--residency"}, "POLICY",
            "which experts of a split model lie on a card: on, off, payback, lru, lfu, as the "
            "server has it",
            &flags.residency)
      .Text({"--routing-trace"}, "FILE", "write which experts every row picked",
            &flags.routing_trace)
      .Text({"--delta-rule"}, "FORM", "recurrent layers over prompts on the CPU: rows or chunks",
            &flags.delta_rule)
      .Text({"-ctk", "--cache-type-k"}, "TYPE", "of the keys kept: f32, f16, q8_0", &flags.type_k)
      .Text({"-ctv", "--cache-type-v"}, "TYPE", "of the values kept", &flags.type_v)
      .Text({"-lm", "--load-mode"}, "MODE",
            std::string(exec::kLoadModeChoices) + ": " + std::string(exec::kLoadModeHelp),
            &flags.load_mode)
      .Switch({"--mmap"}, "as --load-mode mmap", "mmap", &flags.load_mode)
      .Switch({"--no-mmap"}, "as --load-mode none", "none", &flags.load_mode);
}

std::string ModelPathOf(const SeatFlags& flags) {
  const auto environment = Environment();
  const auto plugins = environment.find("BLOOMERY_PLUGIN_PATH");
  serve::ServeSettings named;
  named.model_path = flags.model;
  named.plugin_dirs = flags.plugin_dirs;
  ResolveModelName(named, ExecutablePath(), plugins == environment.end() ? "" : plugins->second);
  if (!named.hf_repo.empty()) {
    throw Error(ErrorKind::kUsage,
                "-m " + Printable(flags.model) + ": lies at a hub; give the path that pull prints",
                "bloomery pull " + named.hf_repo);
  }
  return named.model_path.empty() ? DemoModelPath(ExecutablePath()) : named.model_path;
}

LoadedSeat LoadSeatOf(const SeatFlags& flags, int32_t threads, int64_t slot_context,
                      int32_t slots) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context =
      CheckedNarrow<int32_t>(slot_context, ErrorKind::kUsage, "rows of the slot");
  options.rows_max = std::max(static_cast<int32_t>(std::min(flags.ubatch, slot_context)), slots);
  options.batch_rows = static_cast<int32_t>(flags.batch);
  options.threads = threads;
  options.k_type = PlaneTypeOf("-ctk", flags.type_k);
  options.v_type = PlaneTypeOf("-ctv", flags.type_v);
  options.kernels = flags.kernels;
  options.weight_source = exec::LoadModeOf(flags.load_mode);
  SetPlacing(flags, options);

  LoadedSeat loaded;
  const plugin::Discovery discovery = DiscoverPlugins(flags.plugin_dirs);
  loaded.model = std::make_unique<model::ModelFile>(OpenModelAt(ModelPathOf(flags), discovery));
  const plugin::TrialOptions trial = {.build = exec::BuildForTrial};
  const plugin::Selection selection = plugin::Select(*loaded.model, discovery, &trial);
  loaded.instance = std::make_unique<plugin::Instance>(selection.plugin, *loaded.model,
                                                       exec::InstanceOptionsOf(options));
  loaded.seat = exec::LoadSeat(*loaded.model, *loaded.instance, options);
  return loaded;
}

plugin::Discovery DiscoverPlugins(const std::vector<std::string>& plugin_dirs) {
  const auto environment = Environment();
  const auto path = environment.find("BLOOMERY_PLUGIN_PATH");
  return plugin::Discover(plugin::SearchList(
      plugin_dirs, path == environment.end() ? std::string() : path->second, ExecutablePath()));
}

}  // namespace bloomery::apps

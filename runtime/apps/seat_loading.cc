#include "runtime/apps/seat_loading.h"

#include <bloomery/chat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <future>
#include <iostream>
#include <utility>

#include "runtime/apps/cards_json.h"
#include "runtime/apps/fit_places.h"
#include "runtime/apps/folder/folder_model.h"
#include "runtime/apps/load_progress.h"
#include "runtime/apps/state_identity.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/exec/placing.h"
#include "runtime/exec/trial_build.h"
#include "runtime/model/draft_file.h"
#include "runtime/model/gguf.h"
#include "runtime/plugin/select.h"
#include "runtime/text/chat/chatml.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::apps {
namespace {

// Names of GGUF's general.file_type.
std::string FileTypeName(uint64_t type) {
  struct Name {
    uint64_t type;
    const char* name;
  };
  static constexpr std::array<Name, 17> kNames{{{0, "F32"},
                                                {1, "F16"},
                                                {2, "Q4_0"},
                                                {3, "Q4_1"},
                                                {7, "Q8_0"},
                                                {8, "Q5_0"},
                                                {9, "Q5_1"},
                                                {10, "Q2_K"},
                                                {11, "Q3_K_S"},
                                                {12, "Q3_K_M"},
                                                {13, "Q3_K_L"},
                                                {14, "Q4_K_S"},
                                                {15, "Q4_K_M"},
                                                {16, "Q5_K_S"},
                                                {17, "Q5_K_M"},
                                                {18, "Q6_K"},
                                                {32, "BF16"}}};
  for (const Name& name : kNames) {
    if (name.type == type) return name.name;
  }
  return "file type " + std::to_string(type);
}

bl_dtype DtypeOf(serve::PlaneType type) {
  switch (type) {
    case serve::PlaneType::kF32:
      return BL_F32;
    case serve::PlaneType::kF16:
      return BL_F16;
    case serve::PlaneType::kQ8_0:
      return BL_Q8_0;
  }
  return BL_F16;
}

int64_t ArchitectureNumber(const model::Metadata& metadata, const std::string& architecture,
                           const char* key) {
  return metadata.FindI64(architecture + "." + key).value_or(0);
}

bool Drafting(const serve::ServeSettings& settings) {
  return settings.draft.kind != engine::DraftKind::kOff && settings.draft.tokens_max > 0;
}

// By the model's own draft head.
bool DraftsOfHead(const serve::ServeSettings& settings) {
  return Drafting(settings) && settings.draft.kind == engine::DraftKind::kMtp;
}

// The file of draft layers is opened where they are run.
model::ModelFile OpenModel(const serve::ServeSettings& settings, const std::string& path,
                           const plugin::Discovery& discovery) {
  model::ModelFile model = OpenModelAt(path, discovery);
  if (settings.draft_file.empty() || !DraftsOfHead(settings)) return model;
  return model::WithDraftFile(std::move(model),
                              model::OpenGguf(RealFileSystem(), settings.draft_file));
}

// Seconds since 1970; the start of this process for a file that does not say.
int64_t LastWritten(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 ? int64_t{found.st_mtime}
                                           : static_cast<int64_t>(std::time(nullptr));
}

// For the first look at a model whose slots get what it was trained with.
constexpr int32_t kFirstSlotContext = 4096;

// Rows that --slot-ctx or --ctx-size give each slot; 0 without them.
int32_t AskedSlotContext(const serve::ServeSettings& settings) {
  if (settings.slot_context > 0) {
    const int64_t all = int64_t{settings.slot_context} * settings.parallel;
    if (settings.context == 0 || all <= settings.context) return settings.slot_context;
    throw Error(ErrorKind::kUsage, "--slot-ctx " + std::to_string(settings.slot_context) + " for " +
                                       std::to_string(settings.parallel) + " slots is " +
                                       std::to_string(all) + " tokens, more than --ctx-size " +
                                       std::to_string(settings.context));
  }
  const int32_t asked = settings.context / settings.parallel;
  if (settings.context != 0 && asked < 1) {
    throw Error(ErrorKind::kUsage, "--ctx-size " + std::to_string(settings.context) +
                                       " leaves nothing for each of " +
                                       std::to_string(settings.parallel) + " slots");
  }
  return asked;
}

// The most slots that --parallel auto may come to before memory is asked. A total without a slot's
// own context is not divided: that would be another context than was asked for.
int32_t AutomaticSlotsMax(const serve::ServeSettings& settings) {
  constexpr int32_t kMost = 4;
  if (settings.context == 0) return kMost;
  if (settings.slot_context == 0) return 1;
  return std::clamp(settings.context / settings.slot_context, 1, kMost);
}

// Thrown by a look at a plan that fits: where the weights would lie.
struct Placed {
  memory::Place place;
  std::string device;
  std::vector<uint32_t> frames;
  memory::WeightSource host_weights;
  bool operator==(const Placed&) const = default;
};

// Everything of the placement but what grows with the slots.
Placed PlacedBy(const memory::Placement& placement) {
  return {.place = placement.place,
          .device = placement.device,
          .frames = placement.frames,
          .host_weights = placement.host_weights};
}

// llama-server's, where the plan leaves twice as much.
constexpr uint64_t kCacheBytesAutomatic = uint64_t{8} << 30;

engine::CacheOptions CacheOf(const serve::ServeSettings& settings, const memory::MemoryPlan& plan) {
  const std::optional<uint64_t> left = plan.Left();
  engine::CacheOptions cache{.folder = settings.cache_disk,
                             .folder_bytes = settings.cache_disk_bytes};
  if (!settings.cache_ram_mib) {
    cache.ram_bytes = std::min(kCacheBytesAutomatic, left.value_or(UINT64_MAX) / 2);
  } else if (*settings.cache_ram_mib < 0) {
    cache.ram_bytes = UINT64_MAX;
  } else {
    cache.ram_bytes = static_cast<uint64_t>(*settings.cache_ram_mib) << 20;
    if (left && cache.ram_bytes > *left) {
      LOG(WARNING) << "--cache-ram: the prompt cache may take "
                   << memory::FormatBytes(cache.ram_bytes) << ", the plan leaves "
                   << memory::FormatBytes(*left);
    }
  }
  if (!cache.folder.empty() && cache.ram_bytes == 0) {
    throw Error(ErrorKind::kUsage,
                "--cache-disk works behind the prompt cache in memory, which has no room: give it "
                "some with --cache-ram");
  }
  return cache;
}

}  // namespace

int32_t SlotContext(int32_t asked, uint64_t trained) {
  if (asked == 0) {
    if (trained > INT32_MAX) {
      throw Error(ErrorKind::kBadModel, "the model's context length (its key context_length) is " +
                                            std::to_string(trained) + ", more than " +
                                            std::to_string(INT32_MAX) +
                                            " tokens; --ctx-size gives a smaller one");
    }
    if (trained == 0) {
      throw Error(ErrorKind::kUsage,
                  "the model's plugin names no context length; give one with --ctx-size");
    }
    return static_cast<int32_t>(trained);
  }
  if (trained == 0 || static_cast<uint64_t>(asked) <= trained) return asked;
  LOG(WARNING) << "a context of " << asked << " a slot was asked for; the model was trained with "
               << trained << ", and each slot gets that";
  return static_cast<int32_t>(trained);
}

void ApplyChatSurface(const plugin::ChatSurface& chat, text::VocabularyData& vocabulary) {
  vocabulary.stop_ids = chat.stop_ids;
  vocabulary.pre_patterns = chat.pre_patterns;
  const bool file_names_one = !vocabulary.pre.empty() && vocabulary.pre != "default";
  const std::string& pre = file_names_one ? vocabulary.pre : chat.pre_tokenizer;
  if (!chat.pre_patterns.empty() && text::FindPreTokenizer(pre) == nullptr) {
    LOG(INFO) << "the file's pre-tokenizer '" << Printable(vocabulary.pre)
              << "' is none that this host knows: the plugin's expressions split text";
    return;
  }
  if (chat.pre_tokenizer.empty() || chat.pre_tokenizer == vocabulary.pre) return;
  if (!file_names_one) {
    LOG(INFO) << "the file names no pre-tokenizer; the plugin's is taken: "
              << Printable(chat.pre_tokenizer);
    vocabulary.pre = chat.pre_tokenizer;
  } else {
    LOG(WARNING) << "the file's pre-tokenizer is '" << Printable(vocabulary.pre)
                 << "' and the plugin names '" << Printable(chat.pre_tokenizer)
                 << "'; the file's is taken";
  }
}

std::function<void(uint64_t, uint64_t)> UnlessFailed(std::shared_future<TextParts> parts,
                                                     std::function<void(uint64_t, uint64_t)> show) {
  return [parts = std::move(parts), show = std::move(show)](uint64_t done, uint64_t total) {
    if (parts.wait_for(std::chrono::seconds(0)) == std::future_status::ready) parts.get();
    show(done, total);
  };
}

ServedModel::ServedModel(const serve::ServeSettings& asked, const std::string& path,
                         const std::string& executable, const std::string& plugin_path_variable,
                         const LoadWatch& watch) {
  const plugin::Discovery discovery =
      plugin::Discover(plugin::SearchList(asked.plugin_dirs, plugin_path_variable, executable));
  model_ = std::make_unique<model::ModelFile>(OpenModel(asked, path, discovery));
  for (const plugin::Verdict& verdict : discovery.verdicts) {
    if (verdict.skipped) LOG(WARNING) << "plugin skipped: " << verdict.path << ": " << verdict.text;
  }
  const plugin::TrialOptions trial =
      exec::TrialOf(DraftsOfHead(asked) ? asked.draft.tokens_max : 0);
  const plugin::Selection selection = plugin::Select(*model_, discovery, &trial);
  LOG(INFO) << "plugin " << selection.plugin.name << ' ' << selection.plugin.version << " from "
            << selection.plugin.path;
  const serve::ServeSettings settings = WithSlots(asked, selection.plugin);
  exec::SeatOptions options = CreateInstance(settings, selection.plugin, 0);
  const plugin::ChatSurface chat =
      plugin::ReadChatSurface(instance_->Extension(BL_EXT_CHAT_1), selection.plugin.name);
  // Large vocabularies take as long as some hundred megabytes of weights: both at the same time.
  const std::shared_future<TextParts> parts =
      std::async(std::launch::async, [&] {
        text::VocabularyData vocabulary = text::ReadVocabulary(model_->metadata());
        ApplyChatSurface(chat, vocabulary);
        tokenizer_ = std::make_unique<text::Tokenizer>(vocabulary);
        template_ = std::make_unique<chat::ChatTemplate>(MakeTemplate(settings, chat));
        return TextParts{tokenizer_.get(), template_.get()};
      }).share();
  text_extension_ = std::make_unique<TextExtension>(parts);
  instance_->SetTextExtension(&text_extension_->table());
  LoadProgress progress(std::cerr, isatty(STDERR_FILENO) != 0);
  const auto show_progress = UnlessFailed(parts, [&](uint64_t done, uint64_t total) {
    if (watch.progress) return watch.progress(done, total);
    if (asked.log_level > 1) progress.Show(done, total);  // news, as the log's are
  });
  seat_.chat = DescribeChat(chat);
  seat_.model = DescribeModel(selection.plugin);
  const auto planned = [&](const memory::Placement& placement) {
    if (!watch.planned) return;
    watch.planned({seat_.model, options, placement, exec::WorkOf(instance_->description()),
                   seat_.chat, [&] { return parts.get(); }});
  };
  try {
    LoadRunner(settings, selection.plugin, planned, show_progress, options);
  } catch (...) {
    parts.wait();  // it uses what this scope holds
    throw;
  }
  parts.get();
  if (template_->is_fallback()) {
    LOG(WARNING) << "the model's file has no chat template; chats are written as ChatML";
  }
  LOG(INFO) << runner_->PlanLine();
  LOG(INFO) << runner_->LoadLine();
  engine::EngineOptions engine_options;
  engine_options.batch_rows = settings.batch;
  engine_options.ubatch_rows = runner_->limits().rows_max;  // parts of a pass are the seat's
  engine_options.n_predict = settings.n_predict;
  engine_options.queue_max = settings.queue_depth;
  engine_options.decode_gap_ms = settings.decode_gap_ms;
  engine_options.slot_similarity = settings.slot_similarity;
  engine_options.draft = settings.draft;
  if (!Drafting(settings)) engine_options.draft.kind = engine::DraftKind::kOff;
  engine_options.cache = CacheOf(settings, runner_->HostPlan());
  if (!settings.cache_disk.empty() || !settings.slot_save_path.empty()) {
    engine_options.cache.identity =
        IdentityOf(*model_, *runner_, {executable, selection.plugin.path});
  }
  engine_ = std::make_unique<engine::Engine>(*runner_, *tokenizer_, engine_options);

  seat_.engine = engine_.get();
  seat_.tokenizer = tokenizer_.get();
  grammars_ = std::make_unique<text::GrammarCompiler>(*tokenizer_);
  seat_.grammars = grammars_.get();
  seat_.calls = &calls_;
  seat_.chat_template = template_.get();
  const std::set<std::string>& inexact = runner_->inexact_operators();
  seat_.inexact_operators.assign(inexact.begin(), inexact.end());
  seat_.devices = CardsJson(runner_->Cards());
  seat_.residency = [this] { return runner_->ReadResidency(); };
  seat_.residency_status = [this] { return runner_->ReadResidencyStatus(); };
  seat_.reset_residency = [this] { runner_->RequestResidencyReset(); };
  seat_.kernels = serve::Json::Object({{"isa", runner_->kernels()},
                                       {"threads", runner_->threads()},
                                       {"plan", runner_->PlanLine()}});
}

ServedModel::~ServedModel() = default;

// The settings with a number of slots. Plans are looked at for each number in turn, as a load would
// make them; nothing is allocated for that.
serve::ServeSettings ServedModel::WithSlots(const serve::ServeSettings& asked,
                                            const plugin::LoadedPlugin& plugin) {
  serve::ServeSettings settings = asked;
  if (settings.parallel > 0) return settings;
  const auto place_of = [&](int32_t slots) -> std::optional<Placed> {
    settings.parallel = slots;
    exec::SeatOptions options = CreateInstance(settings, plugin, 0);
    options.planned = [](const memory::Placement& placement) {
      if (placement.Fits()) throw PlacedBy(placement);
    };
    try {
      exec::LoadSeat(*model_, *instance_, options);
    } catch (const Placed& placed) {
      return placed;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kNoMemory) throw;
    }
    return std::nullopt;
  };
  int32_t slots = AutomaticSlotsMax(asked);
  const std::optional<Placed> one = slots > 1 ? place_of(1) : std::nullopt;
  while (slots > 1 && (!one || place_of(slots) != one)) --slots;
  settings.parallel = slots;
  LOG(INFO) << "--parallel auto: " << slots << (slots == 1 ? " slot" : " slots");
  return settings;
}

// A context that was not given gives way before anything else does: before experts leave a card,
// and before the CPU takes the card's place.
void ServedModel::LoadRunner(const serve::ServeSettings& settings,
                             const plugin::LoadedPlugin& plugin,
                             const std::function<void(const memory::Placement&)>& planned,
                             const std::function<void(uint64_t, uint64_t)>& progress,
                             exec::SeatOptions& options) {
  struct ContextTooLarge {};
  std::vector<memory::Placement> refused;
  options.progress = progress;
  options.planned = planned;
  if (settings.fit && settings.context == 0 && settings.slot_context == 0) {
    options.planned = [&](const memory::Placement& placement) {
      if (IsAsMeant(placement, !refused.empty())) return planned(placement);
      refused.push_back(placement);
      if (placement.Fits()) throw ContextTooLarge();
    };
  }
  try {
    runner_ = exec::LoadSeat(*model_, *instance_, options);
    return;
  } catch (const ContextTooLarge&) {
    LOG(INFO) << "the model fits with less context than it was trained with, or elsewhere";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNoMemory || refused.empty()) throw;
  }
  const int32_t most = refused.front().slot_context;
  OrderForContext(refused);
  options = FitContext(settings, plugin, most, refused);
  options.progress = progress;
  options.planned = planned;
  runner_ = exec::LoadSeat(*model_, *instance_, options);
}

// What the model was trained with is the plugin's to say, and an instance is made for a context: it
// is made a second time where the first was made for another than the slots get.
exec::SeatOptions ServedModel::CreateInstance(const serve::ServeSettings& settings,
                                              const plugin::LoadedPlugin& plugin,
                                              int32_t slot_context) {
  const int32_t asked = slot_context != 0 ? slot_context : AskedSlotContext(settings);
  const auto create = [&](int32_t rows) {
    exec::SeatOptions options = OptionsOf(settings, rows);
    instance_.reset();
    instance_ =
        std::make_unique<plugin::Instance>(plugin, *model_, exec::InstanceOptionsOf(options));
    if (text_extension_) instance_->SetTextExtension(&text_extension_->table());
    return options;
  };
  exec::SeatOptions options = create(asked == 0 ? kFirstSlotContext : asked);
  const int32_t rows = SlotContext(asked, instance_->description().context_trained);
  if (rows != options.slot_context) options = create(rows);
  return options;
}

memory::Placement ServedModel::PlacementOf(exec::SeatOptions options) const {
  struct Planned {
    memory::Placement placement;
  };
  options.planned = [](const memory::Placement& placement) { throw Planned{placement}; };
  try {
    exec::LoadSeat(*model_, *instance_, options);
  } catch (const Planned& planned) {
    return planned.placement;
  }
  throw Error(ErrorKind::kInternal, "a seat was loaded without a plan");
}

// On each place that has no room for it, the largest context with which the model lies there as it
// should. Where none makes it so, the places' own way out gets the least one.
exec::SeatOptions ServedModel::FitContext(const serve::ServeSettings& settings,
                                          const plugin::LoadedPlugin& plugin, int32_t most,
                                          std::span<const memory::Placement> places) {
  const int32_t least = std::clamp(settings.fit_context / settings.parallel, 1, most);
  for (const memory::Placement& place : places) {
    const serve::ServeSettings on = SettingsOn(place, settings);
    const auto context = memory::LargestContext(least, most, [&](int32_t slot_context) {
      return PlacementOf(CreateInstance(on, plugin, slot_context)).Need();
    });
    if (!context) continue;
    if (*context < most) {
      LOG(WARNING) << "a slot's context is " << *context << " of the " << most
                   << " that the model was trained with: more does not fit (" << place.device
                   << "); --ctx-size asks for another";
    }
    return CreateInstance(on, plugin, *context);
  }
  if (least < most) {
    LOG(WARNING) << "a slot's context is " << least << " of the " << most
                 << " that the model was trained with, the least that --fit-ctx allows";
  }
  return CreateInstance(settings, plugin, least);
}

exec::SeatOptions ServedModel::OptionsOf(const serve::ServeSettings& settings,
                                         int32_t slot_context) {
  exec::SeatOptions options;
  options.slots = settings.parallel;
  options.slot_context = slot_context;
  options.rows_max = std::max(std::min(settings.ubatch, slot_context), settings.parallel);
  options.batch_rows = settings.batch;
  options.threads = settings.threads;
  options.k_type = DtypeOf(settings.type_k);
  options.v_type = DtypeOf(settings.type_v);
  options.kernels = settings.isa;
  options.delta_chunks = settings.delta_chunks;
  const bool host =
      settings.placing.card_layers == 0U || settings.placing.place == memory::Place::kHost;
  options.device = host ? "none" : settings.device;
  options.shares = settings.card_shares;
  options.placing = settings.placing;
  options.auto_splits = settings.fit;
  options.card_budget = settings.card_budget_bytes;
  options.card_margin = settings.fit_margin_bytes;
  options.card_margins = settings.fit_margins_bytes;
  options.host_budget = settings.host_budget_bytes;
  options.weight_source = settings.load_mode;
  options.residency.kind = settings.residency;
  if (Drafting(settings)) {
    options.window_rows = settings.draft.tokens_max + 1;
    options.drafts = DraftsOfHead(settings);
  }
  options.residency.trace = settings.routing_trace;
  return options;
}

serve::ChatInfo ServedModel::DescribeChat(const plugin::ChatSurface& chat) {
  serve::ChatInfo info;
  info.stop_texts = chat.stop_texts;
  info.tool_syntax = chat.tool_syntax;
  info.recommended_sampling = serve::Json::Object();
  const auto set = [&](const char* name, const auto& value) {
    if (value) info.recommended_sampling.Set(name, *value);
  };
  set("top_k", chat.sampling.top_k);
  set("temperature", chat.sampling.temperature);
  set("top_p", chat.sampling.top_p);
  set("min_p", chat.sampling.min_p);
  set("presence_penalty", chat.sampling.presence_penalty);
  return info;
}

serve::ModelInfo ServedModel::DescribeModel(const plugin::LoadedPlugin& plugin) const {
  const model::Metadata& metadata = model_->metadata();
  serve::ModelInfo info;
  info.path = model_->path();
  info.name = std::filesystem::path(info.path).filename().string();
  info.created = LastWritten(info.path);
  info.architecture = metadata.GetString("general.architecture");
  info.plugin = plugin.name + " " + plugin.version;
  if (const auto type = metadata.FindU64("general.file_type")) info.ftype = FileTypeName(*type);
  info.bytes = model_->tensor_bytes();
  for (const model::TensorInfo& tensor : model_->tensors()) {
    info.parameters += tensor.ne[0] * tensor.rows();
  }
  info.context_trained = static_cast<int64_t>(instance_->description().context_trained);
  info.embedding_width = ArchitectureNumber(metadata, info.architecture, "embedding_length");
  info.layers = ArchitectureNumber(metadata, info.architecture, "block_count");
  info.experts = ArchitectureNumber(metadata, info.architecture, "expert_count");
  info.experts_used = ArchitectureNumber(metadata, info.architecture, "expert_used_count");
  return info;
}

chat::ChatTemplate ServedModel::MakeTemplate(const serve::ServeSettings& settings,
                                             const plugin::ChatSurface& chat) const {
  const model::Metadata& metadata = model_->metadata();
  const auto text_of = [&](const char* key) {
    return std::string(metadata.FindString(key).value_or(""));
  };
  chat::ChatTemplate::Source source;
  const bool overridden = !settings.chat_template.empty();
  source.main = overridden ? settings.chat_template : text_of("tokenizer.chat_template");
  if (settings.chat_template == chat::kChatMlName) source.main = chat::kChatMl;
  source.tool_use = overridden ? "" : text_of("tokenizer.chat_template.tool_use");
  source.bos_text = tokenizer_->SpecialPiece(tokenizer_->special_ids().bos);
  source.eos_text = tokenizer_->SpecialPiece(tokenizer_->special_ids().eos);
  source.adds_bos = tokenizer_->add_bos();
  source.adds_eos = tokenizer_->add_eos();
  source.marks = {chat.reasoning_open, chat.reasoning_close};
  return chat::ChatTemplate::Make(std::move(source));
}

}  // namespace bloomery::apps

// From a model file to what the server and the chat serve: file, plugin, seat, tokenizer, template,
// engine, put together in that order and taken apart in the other. The only place that knows all of
// them. Loading runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/apps/text_extension.h"
#include "runtime/exec/seat.h"
#include "runtime/memory/placement.h"
#include "runtime/memory/predict.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/chat_surface.h"
#include "runtime/plugin/instance.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::apps {

// Rows of a slot where `asked` were asked for (0: no wish) of a model trained with `trained` (0:
// unknown): never more than it was trained with, and a cut is logged. Throws Error(kUsage) where
// neither is known.
int32_t SlotContext(int32_t asked, uint64_t trained);

// The file's pre-tokenizer with what the plugin says: the plugin's where the file names none (or
// "default"), else the file's, with a log line where they differ; the plugin's expressions where
// that names no split that the host knows; and the plugin's stop ids.
void ApplyChatSurface(const plugin::ChatSurface& chat, text::VocabularyData& vocabulary);

// `show` for a load beside which `parts` are made: throws their failure as soon as they have
// failed, which ends the load.
std::function<void(uint64_t, uint64_t)> UnlessFailed(std::shared_future<TextParts> parts,
                                                     std::function<void(uint64_t, uint64_t)> show);

// What is known of a model before its weights are read.
struct PlannedModel {
  const serve::ModelInfo& info;
  const exec::SeatOptions& options;
  const memory::Placement& placement;  // of cards and the host beside them, or of the host
  memory::SeatWork work;               // of a row
  const serve::ChatInfo& chat;
  std::function<TextParts()> text;  // waits for tokenizer and template; throws their failure
};

// For whoever follows a load; each may be null. What `planned` throws ends the load.
struct LoadWatch {
  std::function<void(const PlannedModel&)> planned = {};
  std::function<void(uint64_t done, uint64_t total)> progress = {};  // null: on stderr
};

class ServedModel {
 public:
  // Error of the step that refuses: kNoInput, kBadModel, kUsage, kNoMemory with the plan's terms.
  // `executable` is where plugins are looked for beside --plugin-dir and $BLOOMERY_PLUGIN_PATH.
  ServedModel(const serve::ServeSettings& asked, const std::string& path,
              const std::string& executable, const std::string& plugin_path_variable,
              const LoadWatch& watch = {});
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const serve::Seat& seat() const { return seat_; }
  std::string PlanLine() const { return runner_->PlanLine(); }

  // What a seat is loaded with for slots of `slot_context` rows.
  static exec::SeatOptions OptionsOf(const serve::ServeSettings& settings, int32_t slot_context);

 private:
  serve::ServeSettings WithSlots(const serve::ServeSettings& asked,
                                 const plugin::LoadedPlugin& plugin);
  // An instance for slots of so many rows; 0: as many as the settings say, or the model was trained
  // with.
  exec::SeatOptions CreateInstance(const serve::ServeSettings& settings,
                                   const plugin::LoadedPlugin& plugin, int32_t slot_context);
  void LoadRunner(const serve::ServeSettings& settings, const plugin::LoadedPlugin& plugin,
                  const std::function<void(const memory::Placement&)>& planned,
                  const std::function<void(uint64_t, uint64_t)>& progress,
                  exec::SeatOptions& options);
  // Plans on the first place that `options` come to, without loading.
  memory::Placement PlacementOf(exec::SeatOptions options) const;
  // An instance of a context that fits, for places that refused the trained one, `most`.
  exec::SeatOptions FitContext(const serve::ServeSettings& settings,
                               const plugin::LoadedPlugin& plugin, int32_t most,
                               std::span<const memory::Placement> places);
  static serve::ChatInfo DescribeChat(const plugin::ChatSurface& chat);
  serve::ModelInfo DescribeModel(const plugin::LoadedPlugin& plugin) const;
  chat::ChatTemplate MakeTemplate(const serve::ServeSettings& settings,
                                  const plugin::ChatSurface& chat) const;

  std::unique_ptr<model::ModelFile> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  chat::CallMemory calls_;
  std::unique_ptr<text::GrammarCompiler> grammars_;  // after the tokenizer, which it reads
  std::unique_ptr<chat::ChatTemplate> template_;
  std::unique_ptr<TextExtension> text_extension_;  // lent to the instance
  std::unique_ptr<plugin::Instance> instance_;
  std::unique_ptr<exec::Seat> runner_;
  std::unique_ptr<engine::Engine> engine_;
  serve::Seat seat_;
};

}  // namespace bloomery::apps

#include "runtime/engine/reuse.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::engine {
namespace {

// Fewer rows than this are evaluated sooner than a file is read.
constexpr int32_t kRowsWorthReading = 32;

class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// All but the last token: its logits are wanted, so it is evaluated in any case.
std::span<const text::TokenId> Wanted(const GenerateRequest& request) {
  return std::span(request.prompt).first(request.prompt.size() - 1);
}

state::Identity WithPlanes(state::Identity identity, const exec::PassRunner& runner) {
  identity.push_back({"planes", runner.StateFormat()});
  return identity;
}

}  // namespace

Reuse::Reuse(exec::PassRunner& runner, std::vector<Slot>& slots, const CacheOptions& options,
             std::function<void()> wake)
    : runner_(runner),
      slots_(slots),
      row_bytes_(runner.StateRowBytes()),
      // Half of the cache's memory where rows alone are not a state.
      checkpoints_(runner, options.ram_bytes / 2),
      identity_(WithPlanes(options.identity, runner)) {
  const bool cached = options.ram_bytes > 0 && row_bytes_ > 0;
  if (checkpoints_.needed() && !checkpoints_.on()) {
    LOG(WARNING)
        << "this model's slots cannot be cut by position, and the prompt cache has no room "
           "for copies of their state ("
        << runner.CheckpointBytes()
        << " bytes each, in half of the cache): a prompt that leaves the slot's own path is "
           "evaluated from its start";
  }
  if (cached && !options.folder.empty()) {
    disk_ = std::make_unique<state::DiskTier>(RealFileSystem(), options.folder, identity_,
                                              row_bytes_, runner.CheckpointBytes());
  }
  worker_ = std::make_unique<state::IoWorker>(std::move(wake));
  if (!cached) return;
  const bool halves = checkpoints_.needed();
  if (disk_ != nullptr && halves) {
    files_ = std::make_unique<CheckpointFiles>(*disk_, *worker_, options.folder_bytes / 2);
  }
  cache_ = std::make_unique<state::PromptCache>(state::PromptCache::Options{
      .row_bytes = row_bytes_,
      .ram_bytes_max = halves ? options.ram_bytes / 2 : options.ram_bytes,
      .disk = disk_.get(),
      .worker = worker_.get(),
      .disk_bytes_max = halves ? options.folder_bytes / 2 : options.folder_bytes});
}

const Slot* Reuse::Other(const Slot& slot, std::span<const text::TokenId> wanted,
                         int32_t* rows) const {
  const Slot* best = nullptr;
  *rows = 0;
  for (const Slot& other : slots_) {
    if (other.id() == slot.id()) continue;
    int32_t common = CommonPrefix(other.tokens(), wanted);
    if (common > *rows) common = runner_.Keepable(other.id(), common);
    if (common <= *rows) continue;
    best = &other;
    *rows = common;
  }
  return best;
}

bool Reuse::Reading(const GenerateRequest& request, bool* asked) {
  if (disk_ == nullptr) return false;
  if (reading()) return true;
  if (files_ != nullptr) {
    if (CheckpointPtr loaded = files_->TakeLoaded()) checkpoints_.Put(std::move(loaded));
  }
  if (*asked || !request.cache_prompt) return false;
  *asked = true;
  const std::span<const text::TokenId> wanted = Wanted(request);
  state::PromptCache::Match match = cache_->Find(wanted);
  const Reach reach = ReachOf(match, wanted);
  if (reach.with_folder < reach.held + kRowsWorthReading) return false;
  std::erase_if(match.steps, [&](const state::PromptCache::Step& step) {
    return step.first >= reach.with_folder;
  });
  cache_->Load(match, wanted);
  const auto front = wanted.first(static_cast<size_t>(reach.with_folder));
  if (files_ != nullptr && checkpoints_.LongestLength(front) < reach.with_folder) {
    files_->Load(front);
  }
  return reading();
}

Reuse::Reach Reuse::ReachOf(const state::PromptCache::Match& match,
                            std::span<const text::TokenId> wanted) {
  // Rows up to where a slot could go on, of so many that are there.
  const auto in_memory = [&](int32_t rows) {
    return checkpoints_.needed()
               ? checkpoints_.LongestLength(wanted.first(static_cast<size_t>(rows)))
               : rows;
  };
  Reach reach = {.held = in_memory(match.at_hand), .with_folder = in_memory(match.rows)};
  for (const Slot& slot : slots_) {
    const int32_t common = CommonPrefix(slot.tokens(), wanted);
    reach.held = std::max(reach.held, in_memory(common));
    if (common == 0 || !checkpoints_.needed()) continue;
    reach.held = std::max(reach.held, runner_.Keepable(slot.id(), common));
  }
  if (files_ != nullptr) {
    const auto front = wanted.first(static_cast<size_t>(match.rows));
    reach.with_folder = std::max(reach.with_folder, files_->Longest(front));
  }
  return reach;
}

void Reuse::CutTo(Slot& slot, int32_t length) {
  runner_.Cut(slot.id(), length);
  slot.CutTo(length);
}

Reused Reuse::Prepare(Slot& slot, const GenerateRequest& request) {
  Reused reused;
  int32_t common = 0;  // with what the slot held
  if (!request.cache_prompt) {
    Save(slot, 0);
    CutTo(slot, 0);
  } else {
    const Stopwatch watch(&counters_.take_seconds);
    const std::span<const text::TokenId> wanted = Wanted(request);
    common = CommonPrefix(slot.tokens(), wanted);
    const Front own = OwnFront(slot, wanted.first(static_cast<size_t>(common)));
    int32_t of_other = 0;
    const Slot* const other = Other(slot, wanted, &of_other);
    state::PromptCache::Match match;
    if (cache_ != nullptr) match = cache_->Find(wanted);
    const Front cached = CachedFront(match, wanted);
    Save(slot, common);
    if (cached.rows > std::max(own.rows, of_other)) {
      const int32_t kept = std::min(common, cached.rows);
      CutTo(slot, kept);
      reused.own = kept;
      TakeFromCache(slot, match, wanted.first(static_cast<size_t>(cached.rows)), reused);
      if (cached.checkpoint != nullptr) {
        if (slot.length() == cached.rows) {
          StandAt(slot, cached);
        } else {
          CutTo(slot, 0);  // a copy failed on the way: no state lies there
        }
        if (slot.length() == 0) reused = {};
      }
    } else if (of_other > own.rows) {
      CutTo(slot, 0);
      reused.other = CopyRows(*other, slot, of_other);
    } else {
      StandAt(slot, own);
      reused.own = slot.length();
    }
    if (cache_ != nullptr) cache_->ReleaseLoaded();
  }
  reused.why = WhyNotMore(request, reused, common);
  counters_.own += static_cast<uint64_t>(reused.own);
  counters_.other_slots += static_cast<uint64_t>(reused.other);
  counters_.memory += static_cast<uint64_t>(reused.memory);
  counters_.folder += static_cast<uint64_t>(reused.disk);
  counters_.requests_reusing += reused.total() > 0 ? 1 : 0;
  return reused;
}

int32_t Reuse::CopyRows(const Slot& from, Slot& to, int32_t rows) {
  try {
    runner_.CopySlot(from.id(), to.id(), rows);
  } catch (const Error& error) {
    LOG(WARNING) << "slot " << to.id() << ": nothing is taken over from slot " << from.id() << ": "
                 << error.what();
    runner_.Cut(to.id(), 0);
    return 0;
  }
  to.Append(from.tokens().first(static_cast<size_t>(rows)));
  return rows;
}

Reuse::Front Reuse::OwnFront(const Slot& slot, std::span<const text::TokenId> common) {
  if (common.empty()) return {};
  Front front = {.rows = runner_.Keepable(slot.id(), static_cast<int32_t>(common.size())),
                 .checkpoint = nullptr};
  if (!checkpoints_.needed()) return front;
  const CheckpointPtr longest = checkpoints_.Longest(common);
  if (longest != nullptr && longest->length() > front.rows) {
    front = {.rows = longest->length(), .checkpoint = longest};
  }
  return front;
}

Reuse::Front Reuse::CachedFront(const state::PromptCache::Match& match,
                                std::span<const text::TokenId> wanted) {
  if (!checkpoints_.needed()) return {.rows = match.at_hand, .checkpoint = nullptr};
  CheckpointPtr longest = checkpoints_.Longest(wanted.first(static_cast<size_t>(match.at_hand)));
  if (longest == nullptr) return {};
  const int32_t rows = longest->length();
  return {.rows = rows, .checkpoint = std::move(longest)};
}

void Reuse::StandAt(Slot& slot, const Front& front) {
  if (front.checkpoint == nullptr) {
    CutTo(slot, front.rows);
    return;
  }
  try {
    runner_.RestoreCheckpoint(slot.id(), front.rows, front.checkpoint->state);
    slot.CutTo(front.rows);
  } catch (const Error& error) {
    LOG(WARNING) << "slot " << slot.id() << ": a saved state cannot be taken up: " << error.what();
    CutTo(slot, 0);
  }
}

int32_t Reuse::PromptRows(const Slot& slot) const {
  return checkpoints_.RowsUntilDue(slot.length(),
                                   static_cast<int32_t>(slot.request().prompt.size()));
}

void Reuse::PromptAdvanced(const Slot& slot) {
  if (checkpoints_.Due(slot.length(), static_cast<int32_t>(slot.request().prompt.size()))) {
    checkpoints_.Take(slot.id(), slot.tokens());
  }
}

void Reuse::TakeFromCache(Slot& slot, const state::PromptCache::Match& match,
                          std::span<const text::TokenId> front, Reused& reused) {
  const auto rows = static_cast<int32_t>(front.size());
  for (const state::PromptCache::Step& step : match.steps) {
    const int32_t end = std::min(step.first + step.rows, rows);
    if (step.block == nullptr || step.first >= rows) break;
    if (end <= slot.length()) continue;
    const int32_t skip = slot.length() - step.first;
    const int32_t count = end - slot.length();
    try {
      runner_.AppendRows(slot.id(), {.rows = step.block->rows(), .bytes = step.block->bytes()},
                         skip, count);
    } catch (const Error& error) {
      LOG(WARNING) << "slot " << slot.id() << ": a saved state cannot be taken up from token "
                   << slot.length() << " on: " << error.what();
      break;
    }
    slot.Append(front.subspan(static_cast<size_t>(slot.length()), static_cast<size_t>(count)));
    (step.from_disk ? reused.disk : reused.memory) += count;
  }
  cache_->Use(match);
}

void Reuse::Save(const Slot& slot, int32_t keep) {
  if (cache_ == nullptr || slot.length() <= keep) return;
  const Stopwatch watch(&counters_.save_seconds);
  cache_->Save(slot.tokens(), [&](int32_t first, int32_t rows, std::span<std::byte> room) {
    runner_.ReadRows(slot.id(), first, rows, room);
  });
  checkpoints_.Take(slot.id(), slot.tokens());
  if (files_ == nullptr) return;
  for (const CheckpointPtr& each : checkpoints_.Of(slot.tokens())) files_->Write(each);
}

void Reuse::Empty(Slot& slot) {
  Save(slot, 0);
  CutTo(slot, 0);
}

void Reuse::Erase(Slot& slot) {
  if (cache_ != nullptr) {
    cache_->Forget(slot.tokens());
    const int32_t shared = cache_->Find(slot.tokens()).rows;
    checkpoints_.Forget(slot.tokens(), shared);
    if (files_ != nullptr) files_->Forget(slot.tokens(), shared);
  }
  CutTo(slot, 0);
}

state::SlotState Reuse::Snapshot(const Slot& slot) const {
  state::SlotState state;
  for (int32_t first = 0; first < slot.length(); first += state::kBlockRows) {
    const int32_t rows = std::min(state::kBlockRows, slot.length() - first);
    auto block = std::make_shared<state::Block>(rows, row_bytes_);
    runner_.ReadRows(slot.id(), first, rows, block->room());
    state.blocks.push_back(std::move(block));
  }
  if (checkpoints_.needed() && slot.length() > 0) {
    state.checkpoint.resize(runner_.CheckpointBytes());
    runner_.ReadCheckpoint(slot.id(), state.checkpoint);
  }
  return state;
}

void Reuse::Fill(Slot& slot, std::span<const text::TokenId> tokens, const state::SlotState& state) {
  try {
    for (const state::BlockPtr& block : state.blocks) {
      runner_.AppendRows(slot.id(), {.rows = block->rows(), .bytes = block->bytes()}, 0,
                         block->rows());
    }
    if (checkpoints_.needed() && !tokens.empty()) {
      runner_.RestoreCheckpoint(slot.id(), static_cast<int32_t>(tokens.size()), state.checkpoint);
    }
  } catch (const Error&) {
    runner_.Cut(slot.id(), 0);
    throw;
  }
  slot.Append(tokens);
}

void Reuse::Close(std::chrono::milliseconds time) {
  if (disk_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + time;
  for (const Slot& slot : slots_) Save(slot, 0);
  cache_->WriteAll(time);
  if (files_ == nullptr) return;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  files_->WriteAll(std::max(left, std::chrono::milliseconds(0)));
}

void Reuse::Count(Metrics& metrics) const {
  metrics.reuse = counters_;
  if (cache_ != nullptr) metrics.cache = cache_->counters();
  if (files_ == nullptr) return;
  const CheckpointFiles::Counters& files = files_->counters();
  metrics.cache.disk_bytes += files.bytes;
  metrics.cache.written_bytes += files.written_bytes;
  metrics.cache.read_bytes += files.read_bytes;
  metrics.cache.evicted_files += files.evicted_files;
  metrics.cache.write_failures += files.write_failures;
  metrics.cache.refused_files += files.refused_files;
}

std::string Reuse::WhyNotMore(const GenerateRequest& request, const Reused& reused,
                              int32_t common) const {
  const int32_t total = reused.total();
  if (!request.cache_prompt) return "cache_prompt is false";
  if (total + 1 == static_cast<int32_t>(request.prompt.size())) return "the last one always is";
  if (total < common) {
    return "the state of this model can be taken up again there, and next at " +
           std::to_string(common);
  }
  std::string why = total == 0 ? "nothing that is kept begins like this prompt"
                               : "nothing that is kept has more in common with the prompt";
  if (cache_ == nullptr) why += "; the prompt cache is off";
  return why;
}

}  // namespace bloomery::engine

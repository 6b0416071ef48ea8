#include "runtime/engine/loop.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace bloomery::engine {
namespace {

// Of the newest request in how long requests of late have taken.
constexpr double kServiceWeight = 0.1;

constexpr char kStopping[] = "the server is stopping";

void CheckOption(const char* flag, int32_t value, int32_t min) {
  if (value >= min) return;
  throw Error(ErrorKind::kUsage, std::string(flag) + ": " + std::to_string(value) + " is below " +
                                     std::to_string(min));
}

}  // namespace

Engine::Loop::Loop(exec::PassRunner& runner, const text::Tokenizer& tokenizer,
                   EngineOptions options)
    : runner_(runner),
      tokenizer_(tokenizer),
      limits_(runner.limits()),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : steady_clock_),
      pass_rows_max_(std::min({limits_.rows_max, options_.batch_rows, options_.ubatch_rows})) {
  best_.reserve(limits::kBestLogits);
  CheckOption("--batch-size", options_.batch_rows, 1);
  CheckOption("--ubatch-size", options_.ubatch_rows, 1);
  CheckOption("--predict", options_.n_predict, -1);
  CheckOption("--queue-depth", options_.queue_max, 1);
  CheckOption("--decode-gap", options_.decode_gap_ms, 0);
  assert(limits_.slots >= 1 && limits_.slot_context >= 1 && limits_.rows_max >= 1);
  if (tokenizer.size() != static_cast<size_t>(limits_.vocabulary)) {
    throw Error(ErrorKind::kBadModel, "the vocabulary has " + std::to_string(tokenizer.size()) +
                                          " tokens, but the model gives " +
                                          std::to_string(limits_.vocabulary) + " logits a row");
  }
  const auto slots = static_cast<size_t>(limits_.slots);
  slots_.reserve(slots);
  for (int32_t id = 0; id < limits_.slots; ++id) slots_.emplace_back(id, limits_.slot_context);
  rows_.reserve(static_cast<size_t>(pass_rows_max_));
  parts_.reserve(slots);
  prompt_order_.reserve(slots);
  outbox_.reserve(4 * slots);
  published_slots_.resize(slots);
  reuse_ = std::make_unique<Reuse>(runner_, slots_, options_.cache, [this] {
    // With the lock, so that the loop cannot fall asleep between its look and this call.
    {
      const std::lock_guard lock(mutex_);
    }
    work_.notify_one();
  });
  if (options_.draft.kind != DraftKind::kOff) {
    drafts_ = std::make_unique<Drafts>(runner_, options_.draft, clock_);
  }
  PublishAndDeliver();
  thread_ = std::thread([this] { Main(); });
}

Engine::Loop::~Loop() { Stop(std::chrono::milliseconds(0)); }

std::vector<SlotInfo> Engine::Loop::SlotsSnapshot() const {
  const std::lock_guard lock(mutex_);
  return published_slots_;
}

Metrics Engine::Loop::ReadMetrics() const {
  const std::lock_guard lock(mutex_);
  return published_metrics_;
}

std::optional<std::string> Engine::Loop::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

uint64_t Engine::Loop::Beat() {
  uint64_t rounds = 0;
  {
    const std::lock_guard lock(mutex_);
    beat_wanted_ = true;
    rounds = rounds_;
  }
  work_.notify_one();
  return rounds;
}

void Engine::Loop::Stop(std::chrono::milliseconds drain) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_at_ = std::min(stop_at_, clock_.Now() + drain);
  }
  work_.notify_one();
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Engine::Loop::Main() {
  try {
    while (Round()) {
    }
    if (!failure()) Close();
  } catch (const std::exception& error) {
    Die(error.what());
  }
}

// An orderly end: what the folder lacks is written, and actions under way are answered.
void Engine::Loop::Close() {
  constexpr std::chrono::seconds kTimeMax(limits::kStateFlushSecondsMax);
  reuse_->Close(kTimeMax);
  reuse_->worker().Drain(kTimeMax);
  reuse_->worker().RunCompletions();
  FailActions(kStopping);
  PublishAndDeliver();
}

// Returns whether to go on.
bool Engine::Loop::Round() {
  TakeIncoming();
  reuse_->worker().RunCompletions();
  if (StopNow()) return false;
  DropCancelled();
  RunActions();
  StartWaiting();
  PublishAndDeliver();
  PackRows();
  if (rows_.empty()) return true;
  RunPass();
  PublishAndDeliver();
  if (failed_in_a_row_ < limits::kFailedPassesMax) return true;
  Die(std::to_string(failed_in_a_row_) +
      " passes in a row failed, the last with: " + last_failure_);
  return false;
}

void Engine::Loop::TakeIncoming() {
  // What waits for the folder goes on when the worker says so.
  const bool busy = (!waiting_.empty() && !reuse_->reading()) || !actions_.empty() ||
                    std::ranges::any_of(slots_, [](const Slot& slot) { return !slot.idle(); });
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] {
    return busy || stopping_ || beat_wanted_ || !incoming_.empty() || !incoming_actions_.empty() ||
           reuse_->worker().HasCompletions();
  });
  beat_wanted_ = false;
  ++rounds_;
  MoveIncoming();
}

void Engine::Loop::MoveIncoming() {
  while (!incoming_.empty()) {
    waiting_.push_back(std::move(incoming_.front()));
    incoming_.pop_front();
  }
  while (!incoming_actions_.empty()) {
    actions_.push_back(std::move(incoming_actions_.front()));
    incoming_actions_.pop_front();
  }
}

// Whether a stop was asked and the running requests have ended, of themselves or by the deadline.
bool Engine::Loop::StopNow() {
  Clock::TimePoint stop_at;
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) return false;
    stop_at = stop_at_;
    MoveIncoming();  // what came between the last look and the stop
  }
  FailWaiting(ErrorKind::kUnavailable, kStopping);
  FailActions(kStopping);
  if (clock_.Now() >= stop_at) EndRunning(ErrorKind::kUnavailable, kStopping);
  PublishAndDeliver();
  return std::ranges::all_of(slots_, [](const Slot& slot) { return slot.idle(); });
}

void Engine::Loop::DropCancelled() {
  static constexpr char kReason[] = "cancelled by the client";
  size_t dropped = std::erase_if(waiting_, [this](const Task& task) {
    if (!task.generation->cancelled()) return false;
    ++counters_.requests_cancelled;
    Post(task.generation, Failed{.kind = ErrorKind::kCancelled, .message = kReason});
    return true;
  });
  for (Slot& slot : slots_) {
    if (slot.idle() || !slot.generation()->cancelled()) continue;
    FailGeneration(slot.generation(), ErrorKind::kCancelled, kReason);
  }
  const std::lock_guard lock(mutex_);
  queued_ -= dropped;
}

// In order of arrival. One that waits for its named slot lets others pass; one that waits for
// several slots does not, or it might wait for ever, nor does one that waits for the folder, which
// is soon over.
void Engine::Loop::StartWaiting() {
  size_t started = 0;
  for (auto task = waiting_.begin(); task != waiting_.end();) {
    const Place place = TryStart(*task);
    if (place == Place::kTooFewSlots || place == Place::kReading) break;
    if (place == Place::kSlotBusy) {
      ++task;
      continue;
    }
    task = waiting_.erase(task);
    ++started;
  }
  if (started == 0) return;
  const std::lock_guard lock(mutex_);
  queued_ -= started;
}

Engine::Loop::Place Engine::Loop::TryStart(Task& task) {
  const GenerateRequest& request = *task.generation->request();
  const auto free = std::ranges::count_if(slots_, [](const Slot& slot) { return slot.idle(); });
  if (free < request.choices) return Place::kTooFewSlots;
  const bool named = request.id_slot >= 0 && request.id_slot < limits_.slots;
  if (named && !slots_[static_cast<size_t>(request.id_slot)].idle()) {
    return request.choices > 1 ? Place::kTooFewSlots : Place::kSlotBusy;
  }
  if (reuse_->Reading(request, &task.asked_folder)) return Place::kReading;
  StartTask(task, named ? request.id_slot : PickSlot(request));
  return Place::kStarted;
}

// The free slot that holds the longest prefix of the prompt, where that is more than a part of it;
// ties to the least recently used, then to the lowest id. Else, and for a request that reuses
// nothing, the least recently used: it spares what others may reuse.
int32_t Engine::Loop::PickSlot(const GenerateRequest& request) const {
  int32_t best = LeastRecentlyUsed();
  if (!request.cache_prompt || options_.slot_similarity <= 0) return best;
  auto best_prefix =
      static_cast<int32_t>(options_.slot_similarity * static_cast<double>(request.prompt.size()));
  bool found = false;
  for (const Slot& slot : slots_) {
    if (!slot.idle()) continue;
    const int32_t prefix = CommonPrefix(slot.tokens(), request.prompt);
    const bool longer = prefix > best_prefix;
    const bool older = found && prefix == best_prefix &&
                       slot.last_used() < slots_[static_cast<size_t>(best)].last_used();
    if (!longer && !older) continue;
    best = slot.id();
    best_prefix = prefix;
    found = true;
  }
  return best;
}

int32_t Engine::Loop::LeastRecentlyUsed() const {
  int32_t best = -1;
  for (const Slot& slot : slots_) {
    if (!slot.idle()) continue;
    if (best < 0 || slot.last_used() < slots_[static_cast<size_t>(best)].last_used()) {
      best = slot.id();
    }
  }
  assert(best >= 0);
  return best;
}

void Engine::Loop::StartTask(Task& task, int32_t first_slot) {
  const GenerateRequest& request = *task.generation->request();
  const Clock::TimePoint now = clock_.Now();
  Slot& slot = slots_[static_cast<size_t>(first_slot)];
  const Reused reused = reuse_->Prepare(slot, request);
  const int32_t keep = reused.total();
  LogStart(slot, request, reused);
  slot.StartPrompt(task.generation, std::move(task.choices[0]), keep, now);
  for (size_t i = 1; i < task.choices.size(); ++i) {
    Slot& further = slots_[static_cast<size_t>(LeastRecentlyUsed())];
    reuse_->Save(further, 0);  // it gets a copy of the first's state when that is ready
    further.AwaitPrompt(task.generation, std::move(task.choices[i]), now);
  }
  Post(task.generation, Begin{.id_task = task.generation->id_task(), .id_slot = slot.id()});
  if (request.return_progress) {
    Post(task.generation, Progress{.total = static_cast<int32_t>(request.prompt.size()),
                                   .cache = keep,
                                   .processed = keep});
  }
}

// The one line a request: what it took over, and why not more.
void Engine::Loop::LogStart(const Slot& slot, const GenerateRequest& request,
                            const Reused& reused) {
  std::string from;
  const auto add = [&](int32_t tokens, const char* where) {
    if (tokens > 0) from += (from.empty() ? "" : ", ") + std::to_string(tokens) + where;
  };
  add(reused.own, " held by the slot");
  add(reused.other, " from another slot");
  add(reused.memory, " from memory");
  add(reused.disk, " from the folder");
  LOG(INFO) << "[req " << request.id << "] slot " << slot.id() << ": " << reused.total() << " of "
            << request.prompt.size() << " prompt tokens taken over"
            << (from.empty() ? "" : " (" + from + ")") << ", "
            << static_cast<int32_t>(request.prompt.size()) - reused.total()
            << " to evaluate: " << reused.why;
}

bool Engine::Loop::AnyIn(SlotState state) const {
  return std::ranges::any_of(slots_, [state](const Slot& slot) { return slot.state() == state; });
}

// One row for each generating slot, and prompt rows in what is left. Decode rows join every pass,
// also those that a long prompt fills, so that no stream waits for another request's whole batch.
void Engine::Loop::PackRows() {
  rows_.clear();
  parts_.clear();
  logits_rows_ = 0;
  prompt_rows_ = 0;
  int32_t decode_rows_max = pass_rows_max_;
  if (AnyIn(SlotState::kPrompt)) {
    // A prompt gets a row even when decode rows fill the pass; with one row they take turns.
    prompt_turn_ = !prompt_turn_;
    decode_rows_max = pass_rows_max_ > 1 ? pass_rows_max_ - 1 : (prompt_turn_ ? 0 : 1);
  }
  MakeDrafts(decode_rows_max);
  PackDecodeRows(decode_rows_max);
  PackPromptRows(PromptRowsMax());
}

// As many as there is room for; where streams wait for the pass, as many as it can have within
// their gap. The pass is then as large as one of the row counts that passes are made for.
int32_t Engine::Loop::PromptRowsMax() const {
  const auto decoding = static_cast<int32_t>(rows_.size());
  const int32_t room = pass_rows_max_ - decoding;
  if (decoding == 0 || options_.decode_gap_ms == 0) return room;
  const double rows = pace_ == 0 ? limits::kMixedRowsFirst : pace_ * 1e-3 * options_.decode_gap_ms;
  if (rows >= pass_rows_max_) return room;
  const auto pass = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(rows)));
  return std::clamp(std::max(pass, limits::kMixedRowsMin) - decoding,
                    std::min(room, limits::kPromptRowsMin), room);
}

// The pace that PromptRowsMax goes by. A pass with few rows takes longer a row: it says nothing
// about a larger one unless it took longer than the gap.
void Engine::Loop::LearnPace(Clock::Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  if (prompt_rows_ == 0 || seconds <= 0) return;
  const double pace = static_cast<double>(rows_.size()) / seconds;
  const bool small = seconds * 1e3 < options_.decode_gap_ms && pace < pace_;
  if (small) return;
  pace_ = pace_ == 0 ? pace : 0.5 * (pace_ + pace);
}

// None beside prompts, which have better use for the rows.
void Engine::Loop::MakeDrafts(int32_t rows_max) {
  if (drafts_ == nullptr) return;
  const auto decoding = static_cast<int32_t>(std::ranges::count_if(
      slots_, [](const Slot& slot) { return slot.state() == SlotState::kGenerating; }));
  const int32_t logits_max = limits_.logit_rows_max == 0 ? rows_max : limits_.logit_rows_max;
  const int32_t exact_max = limits_.draft_pass_rows == 0 ? rows_max : limits_.draft_pass_rows;
  const int32_t free = std::min({rows_max, logits_max, exact_max}) - decoding;
  drafts_->Make(slots_, AnyIn(SlotState::kPrompt) ? 0 : std::max(free, 0));
}

void Engine::Loop::PackDecodeRows(int32_t rows_max) {
  const int32_t first = decode_from_;
  for (int32_t k = 0; k < limits_.slots; ++k) {
    Slot& slot = slots_[static_cast<size_t>((first + k) % limits_.slots)];
    if (slot.state() != SlotState::kGenerating) continue;
    if (static_cast<int32_t>(rows_.size()) == rows_max) {
      decode_from_ = slot.id();  // left out now, first next time
      return;
    }
    Part part{
        .slot = slot.id(), .rows = 1, .length_before = slot.length(), .logits = logits_rows_++};
    exec::PassRow row = {.slot = slot.id(),
                         .index = slot.length(),
                         .token = slot.choice().last_token(),
                         .logits = true};
    rows_.push_back(row);
    if (drafts_ != nullptr) {
      for (const text::TokenId token : drafts_->Of(slot.id())) {
        rows_.back().keep = true;
        ++row.index;
        row.token = token;
        rows_.push_back(row);
        ++part.rows;
        ++logits_rows_;
      }
    }
    parts_.push_back(part);
  }
}

// Oldest request first: in slot order a slot with a high number could starve behind newer requests.
// But up to a quarter is for prompts that end in it, so that a short one does not wait for a long
// one to end.
void Engine::Loop::PackPromptRows(int32_t rows_max) {
  prompt_order_.clear();
  for (const Slot& slot : slots_) {
    if (slot.state() == SlotState::kPrompt) prompt_order_.push_back(slot.id());
  }
  std::ranges::sort(prompt_order_, {}, [this](int32_t id) {
    return slots_[static_cast<size_t>(id)].generation()->id_task();
  });
  int32_t quarter = rows_max / 4;
  for (int32_t& id : prompt_order_) {
    const Slot& slot = slots_[static_cast<size_t>(id)];
    const int32_t left = slot.prompt_left();
    if (left > quarter || reuse_->PromptRows(slot) < left) continue;
    AddPromptRows(id, left);
    quarter -= left;
    rows_max -= left;
    id = -1;
  }
  for (const int32_t id : prompt_order_) {
    if (id < 0) continue;
    const int32_t count = std::min(rows_max, reuse_->PromptRows(slots_[static_cast<size_t>(id)]));
    if (count == 0) return;
    AddPromptRows(id, count);
    rows_max -= count;
  }
}

void Engine::Loop::AddPromptRows(int32_t id, int32_t count) {
  const Slot& slot = slots_[static_cast<size_t>(id)];
  Part part{.slot = id, .rows = count, .length_before = slot.length()};
  for (int32_t i = slot.length(); i < slot.length() + count; ++i) {
    rows_.push_back(
        {.slot = id, .index = i, .token = slot.request().prompt[static_cast<size_t>(i)]});
  }
  if (count == slot.prompt_left() && slot.choice().remaining() != 0) {
    rows_.back().logits = true;
    part.logits = logits_rows_++;
  }
  prompt_rows_ += count;
  parts_.push_back(part);
}

void Engine::Loop::RunPass() {
  ++counters_.passes;
  counters_.pass_slots += parts_.size();
  counters_.rows += rows_.size();
  const Clock::TimePoint began = clock_.Now();
  try {
    runner_.Run(rows_);
  } catch (const Error& error) {
    PassFailed(error);
    return;
  }
  LearnPace(clock_.Now() - began);
  if (drafts_ != nullptr && prompt_rows_ == 0) {
    drafts_->PassTook(static_cast<int32_t>(rows_.size()), clock_.Now() - began);
  }
  failed_in_a_row_ = 0;
  for (const Part& part : parts_) {
    Slot& slot = slots_[static_cast<size_t>(part.slot)];
    if (slot.idle()) continue;  // a sibling's failure ended it: it was cut then
    const std::shared_ptr<Generation> generation = slot.generation();
    try {
      Advance(part);
    } catch (const Error& error) {
      // What made the logits unusable may be in this pass's rows.
      if (!slot.idle()) slot.CutTo(part.length_before);
      FailGeneration(generation, error.kind(), error.what());
    }
  }
}

void Engine::Loop::PassFailed(const Error& error) {
  ++counters_.passes_failed;
  last_failure_ = error.what();
  ++failed_in_a_row_;
  LOG(ERROR) << "a pass of " << rows_.size() << " rows failed: " << error.what();
  for (const Part& part : parts_) {
    Slot& slot = slots_[static_cast<size_t>(part.slot)];
    if (slot.idle()) continue;  // a sibling ended it
    FailGeneration(slot.generation(), error.kind(), error.what());
  }
}

// The rows of `part` were evaluated.
void Engine::Loop::Advance(const Part& part) {
  Slot& slot = slots_[static_cast<size_t>(part.slot)];
  if (slot.state() == SlotState::kGenerating) {
    AdvanceWindow(part);
    return;
  }
  const bool report = slot.AdvancePrompt(part.rows, options_.batch_rows);
  reuse_->PromptAdvanced(slot);
  if (report && slot.request().return_progress) {
    const PromptStats stats = slot.prompt_stats(clock_.Now());
    Post(slot.generation(), Progress{.total = static_cast<int32_t>(slot.request().prompt.size()),
                                     .cache = stats.cached,
                                     .processed = slot.length(),
                                     .time_ms = stats.ms});
  }
  if (slot.prompt_left() == 0) FinishPrompt(slot, part.logits);
}

// The choice draws from row after row, as if each were a pass of its own, for as long as what it
// draws is what the next row was made for. What follows is cut: it never happened.
void Engine::Loop::AdvanceWindow(const Part& part) {
  Slot& slot = slots_[static_cast<size_t>(part.slot)];
  Choice& choice = slot.choice();
  int32_t kept = 0;
  for (;;) {
    slot.AddGenerated();
    Draw(choice, part.logits + kept, clock_.Now());
    ++kept;
    if (drafts_ != nullptr) drafts_->Drew(slot.id(), kept, choice.last_token());
    if (kept == part.rows || choice.ended()) break;
    if (choice.last_token() != drafts_->Of(slot.id())[static_cast<size_t>(kept - 1)]) break;
    if (std::optional<Text> text = choice.TakeText()) Post(slot.generation(), *std::move(text));
  }
  if (kept < part.rows) runner_.Cut(slot.id(), slot.length());
  if (part.rows > 1) {
    choice.CountDraft(part.rows - 1, kept - 1);
    drafts_->Count(part.rows - 1, kept - 1);
  }
  Deliver(slot);
}

// A choice takes its next token from logit row `logits` of the pass.
void Engine::Loop::Draw(Choice& choice, int32_t logits, Clock::TimePoint now) {
  const size_t needed = choice.best_needed();
  if (needed > 0) {
    const std::span<const exec::BestLogit> best = runner_.BestLogits(logits);
    if (best.size() >= needed) {
      best_.clear();
      for (const exec::BestLogit& each : best) best_.push_back({each.logit, each.token});
      if (!choice.StepBest(best_, now)) choice.StepAllowed(runner_.Logits(logits), now);
      return;
    }
  }
  choice.Step(runner_.Logits(logits), now);
}

// The first token of each choice comes from the prompt's last row.
void Engine::Loop::FinishPrompt(Slot& parent, int32_t logits) {
  // Held here: the first choice may end at once, and its slot lets go.
  const std::shared_ptr<Generation> generation = parent.generation();
  const int32_t length = parent.length();
  const Clock::TimePoint now = clock_.Now();
  for (Slot& slot : slots_) {
    if (!slot.Serves(*generation)) continue;
    if (slot.state() == SlotState::kAwaiting) {
      runner_.Cut(slot.id(), 0);
      slot.CutTo(0);
      runner_.CopySlot(parent.id(), slot.id(), length);
    }
    slot.StartGenerating(now);
    if (!slot.choice().ended()) Draw(slot.choice(), logits, now);
    Deliver(slot);
  }
}

// Sends what the choice has to say, and frees the slot at its end.
void Engine::Loop::Deliver(Slot& slot) {
  Choice& choice = slot.choice();
  if (std::optional<Text> text = choice.TakeText()) Post(slot.generation(), *std::move(text));
  if (!choice.ended()) return;
  const std::shared_ptr<Generation> generation = slot.generation();
  Finish finish = choice.MakeFinish(slot.length());
  Release(slot);
  const bool last =
      std::ranges::none_of(slots_, [&](const Slot& other) { return other.Serves(*generation); });
  if (last) ++counters_.requests_finished;
  Post(generation, std::move(finish));
}

// Frees a slot, whatever it was doing, and counts what it did.
void Engine::Loop::Release(Slot& slot) {
  const Timings timings = slot.state() == SlotState::kGenerating
                              ? slot.choice().timings()
                              : MakeTimings(slot.prompt_stats(clock_.Now()), 0, 0);
  counters_.prompt_tokens += static_cast<uint64_t>(timings.prompt_n);
  counters_.prompt_tokens_cached += static_cast<uint64_t>(timings.cache_n);
  counters_.prompt_seconds += timings.prompt_ms * 1e-3;
  counters_.predicted_tokens += static_cast<uint64_t>(timings.predicted_n);
  counters_.predicted_seconds += timings.predicted_ms * 1e-3;
  counters_.tokens_max = std::max(counters_.tokens_max, slot.length());
  const double seconds = std::chrono::duration<double>(clock_.Now() - slot.started_at()).count();
  const double weight = service_seconds_so_far_ == 0 ? 1.0 : kServiceWeight;
  service_seconds_so_far_ += weight * (seconds - service_seconds_so_far_);
  slot.Release(++uses_);
}

// Ends all choices of a running request. Rows of a pass that its slots did not take over are cut.
void Engine::Loop::FailGeneration(const std::shared_ptr<Generation>& generation, ErrorKind kind,
                                  const std::string& message) {
  for (Slot& slot : slots_) {
    if (!slot.Serves(*generation)) continue;
    runner_.Cut(slot.id(), slot.length());
  }
  EndGeneration(generation, kind, message);
}

void Engine::Loop::EndGeneration(const std::shared_ptr<Generation>& generation, ErrorKind kind,
                                 const std::string& message) {
  for (Slot& slot : slots_) {
    if (slot.Serves(*generation)) Release(slot);
  }
  if (kind == ErrorKind::kCancelled) {
    ++counters_.requests_cancelled;
  } else {
    ++counters_.requests_failed;
    if (kind != ErrorKind::kUnavailable) {
      LOG(ERROR) << "[req " << generation->request()->id << "] " << message;
    }
  }
  Post(generation, Failed{.kind = kind, .message = message});
}

void Engine::Loop::FailWaiting(ErrorKind kind, const std::string& message) {
  for (const Task& task : waiting_) {
    ++counters_.requests_failed;
    Post(task.generation, Failed{.kind = kind, .message = message});
  }
  const std::lock_guard lock(mutex_);
  queued_ -= waiting_.size();
  waiting_.clear();
}

// The slots are not cut: whoever ends all running requests runs no further pass, and the runner may
// be what failed.
void Engine::Loop::EndRunning(ErrorKind kind, const std::string& message) {
  for (Slot& slot : slots_) {
    if (slot.idle()) continue;
    EndGeneration(slot.generation(), kind, message);
  }
}

// The engine has failed for good: nothing is left waiting, and Submit names the reason from now on.
void Engine::Loop::Die(const std::string& reason) {
  LOG(ERROR) << "the engine has failed: " << reason;
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
    MoveIncoming();
  }
  const std::string message = "the engine has failed: " + reason;
  FailWaiting(ErrorKind::kUnavailable, message);
  FailActions(message);
  EndRunning(ErrorKind::kInternal, message);
  PublishAndDeliver();
}

void Engine::Loop::Post(const std::shared_ptr<Generation>& generation, Event event) {
  outbox_.emplace_back(generation, std::move(event));
}

// Slots and counters first, so that who has heard of an end also sees the slot free.
void Engine::Loop::PublishAndDeliver() {
  counters_.slots_busy = 0;
  counters_.tokens_held = 0;
  for (const Slot& slot : slots_) {
    counters_.slots_busy += slot.idle() ? 0 : 1;
    counters_.tokens_held += slot.length();
  }
  reuse_->Count(counters_);
  if (drafts_ != nullptr) counters_.drafts = drafts_->counters();
  {
    const std::lock_guard lock(mutex_);
    actions_left_ -= finished_actions_.size();
    counters_.requests_waiting = static_cast<int32_t>(queued_);
    service_seconds_ = service_seconds_so_far_;
    published_metrics_ = counters_;
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].Describe(published_slots_[i]);
  }
  for (auto& [generation, event] : outbox_) generation->Push(std::move(event));
  outbox_.clear();
  for (const std::unique_ptr<Action>& action : finished_actions_) {
    action->what.done(action->result);
  }
  finished_actions_.clear();
}

}  // namespace bloomery::engine

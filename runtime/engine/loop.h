// The engine's thread: which requests run in which slots, which rows share a pass, and what becomes
// of their logits. Submit and the readers enter from other threads and meet the loop under one
// mutex that is never held during a pass or while events are delivered; all else belongs to the
// loop's thread. In the steady state it allocates nothing per token beyond what leaves in events.
//
// One round: take new requests and what the I/O worker has done → drop cancelled ones → slot
// actions → give free slots → pack rows → run the pass → step the choices → publish slots and
// counters → deliver events.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/choice.h"
#include "runtime/engine/drafts.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/reuse.h"
#include "runtime/engine/slot.h"

namespace bloomery::engine {

class Engine::Loop {
 public:
  Loop(exec::PassRunner& runner, const text::Tokenizer& tokenizer, EngineOptions options);
  ~Loop();

  // As Engine's methods of the same names.
  std::shared_ptr<Generation> Submit(GenerateRequest request, Generation::Wake wake);
  void Submit(SlotAction action);
  std::vector<SlotInfo> SlotsSnapshot() const;
  Metrics ReadMetrics() const;
  uint64_t Beat();
  std::optional<std::string> failure() const;
  void Stop(std::chrono::milliseconds drain);

  const exec::SeatLimits& limits() const { return limits_; }
  const EngineOptions& options() const { return options_; }

 private:
  // A request that waits for slots: its choices are ready to go.
  struct Task {
    std::shared_ptr<Generation> generation;
    std::vector<std::unique_ptr<Choice>> choices;
    bool asked_folder = false;  // what the folder holds of its prompt was read, or is not worth it
  };

  // A slot action on its way. What a worker did about a file is in `result`, `tokens`, `state`.
  struct Action {
    SlotAction what;
    SlotAction::Result result;
    bool read = false;  // kRestore: the file was read, or refused
    std::vector<text::TokenId> tokens;
    state::SlotState state;
    Clock::TimePoint started;
  };

  // The rows of one slot in the present pass.
  struct Part {
    int32_t slot = 0;
    int32_t rows = 0;
    int32_t length_before = 0;
    // Which of the pass's logits rows is its last row's or, of a draft's window, its first row's,
    // and the others follow; -1: none was wanted.
    int32_t logits = -1;
  };

  enum class Place { kStarted, kSlotBusy, kTooFewSlots, kReading };

  // Any thread.
  void CheckAccepting() const;  // needs mutex_
  Task MakeTask(GenerateRequest request, Generation::Wake wake);

  // The loop's thread.
  void Main();
  bool Round();
  void Close();
  void TakeIncoming();
  void MoveIncoming();  // needs mutex_
  bool StopNow();
  void DropCancelled();
  void StartWaiting();
  Place TryStart(Task& task);
  int32_t PickSlot(const GenerateRequest& request) const;
  int32_t LeastRecentlyUsed() const;
  void StartTask(Task& task, int32_t first_slot);
  static void LogStart(const Slot& slot, const GenerateRequest& request, const Reused& reused);

  // Slot actions (slot_actions.cc).
  void RunActions();
  void RunAction(std::unique_ptr<Action> action);
  void StartSave(std::unique_ptr<Action> action, const Slot& slot);
  void StartRead(std::unique_ptr<Action> action);
  void FinishRestore(Action& action, Slot& slot);
  void FinishAction(std::unique_ptr<Action> action);
  void FailActions(const std::string& message);

  void PackRows();
  void MakeDrafts(int32_t rows_max);
  void PackDecodeRows(int32_t rows_max);
  int32_t PromptRowsMax() const;
  void PackPromptRows(int32_t rows_max);
  void AddPromptRows(int32_t slot, int32_t count);
  bool AnyIn(SlotState state) const;

  void RunPass();
  void LearnPace(Clock::Duration took);
  void PassFailed(const Error& error);
  void Advance(const Part& part);
  void AdvanceWindow(const Part& part);
  void FinishPrompt(Slot& parent, int32_t logits);
  void Draw(Choice& choice, int32_t logits, Clock::TimePoint now);
  void Deliver(Slot& slot);

  void Release(Slot& slot);
  void FailGeneration(const std::shared_ptr<Generation>& generation, ErrorKind kind,
                      const std::string& message);
  void EndGeneration(const std::shared_ptr<Generation>& generation, ErrorKind kind,
                     const std::string& message);
  void FailWaiting(ErrorKind kind, const std::string& message);
  void EndRunning(ErrorKind kind, const std::string& message);
  void Die(const std::string& reason);
  void Post(const std::shared_ptr<Generation>& generation, Event event);
  void PublishAndDeliver();

  exec::PassRunner& runner_;
  const text::Tokenizer& tokenizer_;
  const exec::SeatLimits limits_;
  EngineOptions options_;
  SteadyClock steady_clock_;
  const Clock& clock_;

  // The loop's own.
  std::vector<Slot> slots_;
  std::deque<Task> waiting_;
  std::deque<std::unique_ptr<Action>> actions_;  // that wait for their slot
  std::vector<std::unique_ptr<Action>> finished_actions_;
  uint64_t uses_ = 0;
  int32_t pass_rows_max_;
  int32_t decode_from_ = 0;   // slot whose turn is first when not all decode rows fit
  double pace_ = 0;           // rows a second of passes with prompts; 0: not known yet
  bool prompt_turn_ = false;  // whose turn it is when a pass has one row only
  std::vector<exec::PassRow> rows_;
  std::vector<Part> parts_;
  std::vector<int32_t> prompt_order_;
  int32_t logits_rows_ = 0;
  int32_t prompt_rows_ = 0;            // of the present pass
  double service_seconds_so_far_ = 0;  // service_seconds_ as the loop has it
  std::vector<text::Candidate> best_;  // of one row, where the runner gives them
  int32_t failed_in_a_row_ = 0;
  std::string last_failure_;
  std::vector<std::pair<std::shared_ptr<Generation>, Event>> outbox_;
  Metrics counters_;
  std::unique_ptr<Drafts> drafts_;  // null: off

  // Shared.
  mutable std::mutex mutex_;
  std::condition_variable work_;
  // The loop's own, but its worker wakes the loop by the two above to its end, so it ends first.
  std::unique_ptr<Reuse> reuse_;
  std::deque<Task> incoming_;
  std::deque<std::unique_ptr<Action>> incoming_actions_;
  size_t actions_left_ = 0;  // submitted and not finished
  int64_t next_id_task_ = 0;
  size_t queued_ = 0;           // incoming_ and waiting_
  double service_seconds_ = 0;  // that a request holds its slot, the latest ones most
  bool beat_wanted_ = false;
  uint64_t rounds_ = 0;
  bool stopping_ = false;
  Clock::TimePoint stop_at_ = Clock::TimePoint::max();
  std::optional<std::string> failure_;
  std::vector<SlotInfo> published_slots_;
  Metrics published_metrics_;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace bloomery::engine

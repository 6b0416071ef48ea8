// Slot actions: a state to a file, from one, or out of its slot. Files are written and read by the
// I/O worker, so that no stream waits for a disk; a saved state is copied first, so the slot is
// free at once.
#include <filesystem>
#include <new>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/engine/loop.h"
#include "runtime/state/state_file.h"

namespace bloomery::engine {
namespace {

// What a client may hear: a file's own fault by name, never a path.
Error ForClient(const Error& error, const std::string& path) {
  if (error.kind() != ErrorKind::kNoInput) return error;
  LOG(WARNING) << error.what();
  const std::string name = std::filesystem::path(path).filename().string();
  return {ErrorKind::kNoInput,
          "'" + name + "' cannot be read or written; the server's log says why"};
}

template <typename Work>
std::optional<Error> Attempt(const std::string& path, Work work) {
  try {
    work();
  } catch (const Error& error) {
    return ForClient(error, path);
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kNoMemory, "there is no memory for a copy of the slot's state");
  }
  return std::nullopt;
}

}  // namespace

void Engine::Loop::Submit(SlotAction what) {
  if (what.slot < 0 || what.slot >= limits_.slots) {
    throw Error(ErrorKind::kBadRequest, "Invalid slot ID");
  }
  auto action = std::make_unique<Action>();
  action->what = std::move(what);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(ErrorKind::kUnavailable, "the engine has failed: " + *failure_);
    if (stopping_) throw Error(ErrorKind::kUnavailable, "the server is stopping");
    if (actions_left_ >= limits::kSlotActionsMax) {
      throw Error(ErrorKind::kUnavailable, "too many slot actions are waiting");
    }
    ++actions_left_;
    incoming_actions_.push_back(std::move(action));
  }
  work_.notify_one();
}

// Those whose slot is idle, in order of arrival; of one slot none passes another.
void Engine::Loop::RunActions() {
  std::vector<bool> taken(actions_.empty() ? 0 : slots_.size());
  for (size_t left = actions_.size(); left > 0; --left) {
    std::unique_ptr<Action> action = std::move(actions_.front());
    actions_.pop_front();
    const auto slot = static_cast<size_t>(action->what.slot);
    const bool waits = taken[slot] || !slots_[slot].idle();
    taken[slot] = true;
    if (waits) {
      actions_.push_back(std::move(action));
    } else {
      RunAction(std::move(action));
    }
  }
}

void Engine::Loop::RunAction(std::unique_ptr<Action> action) {
  Slot& slot = slots_[static_cast<size_t>(action->what.slot)];
  if (action->read) {
    FinishRestore(*action, slot);
    finished_actions_.push_back(std::move(action));
    return;
  }
  action->started = clock_.Now();
  switch (action->what.kind) {
    case SlotAction::Kind::kSave:
      StartSave(std::move(action), slot);
      break;
    case SlotAction::Kind::kRestore:
      StartRead(std::move(action));
      break;
    case SlotAction::Kind::kErase:
      action->result.tokens = slot.length();
      reuse_->Erase(slot);
      finished_actions_.push_back(std::move(action));
      break;
  }
}

void Engine::Loop::StartSave(std::unique_ptr<Action> action, const Slot& slot) {
  action->result.error =
      Attempt(action->what.path, [&] { action->state = reuse_->Snapshot(slot); });
  if (action->result.error) {
    finished_actions_.push_back(std::move(action));
    return;
  }
  action->tokens.assign(slot.tokens().begin(), slot.tokens().end());
  // Shared only because a std::function must be copyable.
  std::shared_ptr<Action> shared = std::move(action);
  reuse_->worker().Post([this, shared]() -> state::IoWorker::Completion {
    const std::string& path = shared->what.path;
    shared->result.error = Attempt(path, [&] {
      shared->result.bytes =
          state::WriteStateFile(path, reuse_->identity(), reuse_->row_bytes(), shared->tokens, 0,
                                shared->state.blocks, shared->state.checkpoint);
    });
    shared->state = {};
    return [this, shared] {
      shared->result.tokens = static_cast<int32_t>(shared->tokens.size());
      FinishAction(std::make_unique<Action>(std::move(*shared)));
    };
  });
}

void Engine::Loop::StartRead(std::unique_ptr<Action> action) {
  std::shared_ptr<Action> shared = std::move(action);
  reuse_->worker().Post([this, shared]() -> state::IoWorker::Completion {
    const std::string& path = shared->what.path;
    shared->result.error = Attempt(path, [&] {
      const state::StateFile file(RealFileSystem(), path,
                                  {.identity = &reuse_->identity(),
                                   .row_bytes = reuse_->row_bytes(),
                                   .tokens_max = limits_.slot_context,
                                   .checkpoint_bytes = runner_.CheckpointBytes()});
      if (file.first() != 0) throw Error(ErrorKind::kBadModel, "it holds a part of a state only");
      for (const text::TokenId token : file.tokens()) {
        if (tokenizer_.Contains(token)) continue;
        throw Error(ErrorKind::kBadModel, "it holds tokens outside of the vocabulary");
      }
      for (int32_t i = 0; i < file.blocks(); ++i) {
        shared->state.blocks.push_back(file.Read(i));
      }
      shared->state.checkpoint = file.ReadCheckpoint();
      shared->tokens = file.tokens();
      shared->result.bytes = file.bytes();
    });
    return [this, shared] {
      shared->read = true;
      actions_.push_front(std::make_unique<Action>(std::move(*shared)));
    };
  });
}

// Of a file that was refused the slot is left empty, and usable.
void Engine::Loop::FinishRestore(Action& action, Slot& slot) {
  reuse_->Empty(slot);
  if (!action.result.error) {
    action.result.error =
        Attempt(action.what.path, [&] { reuse_->Fill(slot, action.tokens, action.state); });
  }
  action.state = {};
  action.result.tokens = static_cast<int32_t>(action.tokens.size());
  action.result.ms =
      std::chrono::duration<double, std::milli>(clock_.Now() - action.started).count();
}

void Engine::Loop::FinishAction(std::unique_ptr<Action> action) {
  action->result.ms =
      std::chrono::duration<double, std::milli>(clock_.Now() - action->started).count();
  finished_actions_.push_back(std::move(action));
}

void Engine::Loop::FailActions(const std::string& message) {
  while (!actions_.empty()) {
    actions_.front()->result.error = Error(ErrorKind::kUnavailable, message);
    finished_actions_.push_back(std::move(actions_.front()));
    actions_.pop_front();
  }
}

}  // namespace bloomery::engine

#include "runtime/engine/engine.h"

#include <utility>

#include "runtime/engine/loop.h"

namespace bloomery::engine {

Engine::Engine(exec::PassRunner& runner, const text::Tokenizer& tokenizer, EngineOptions options)
    : loop_(std::make_unique<Loop>(runner, tokenizer, std::move(options))) {}

Engine::~Engine() = default;

std::shared_ptr<Generation> Engine::Submit(GenerateRequest request, Generation::Wake wake) {
  return loop_->Submit(std::move(request), std::move(wake));
}

void Engine::Submit(SlotAction action) { loop_->Submit(std::move(action)); }

std::vector<SlotInfo> Engine::SlotsSnapshot() const { return loop_->SlotsSnapshot(); }

Metrics Engine::ReadMetrics() const { return loop_->ReadMetrics(); }

uint64_t Engine::Beat() { return loop_->Beat(); }
std::optional<std::string> Engine::failure() const { return loop_->failure(); }

void Engine::Stop(std::chrono::milliseconds drain) { loop_->Stop(drain); }

const exec::SeatLimits& Engine::limits() const { return loop_->limits(); }

const EngineOptions& Engine::options() const { return loop_->options(); }

}  // namespace bloomery::engine

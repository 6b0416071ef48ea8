// Places: how many connections are answered at once, who waits for one, and who makes room.
#include <chrono>
#include <memory>
#include <mutex>

#include "runtime/serve/http_connection.h"

namespace bloomery::serve::internal {

// Whether the request is answered without a place, too.
bool Connection::Reserved() const {
  const auto& reserved = shared_->callbacks.reserved;
  return reserved && reserved(request_) && parser_ && parser_->is_done();
}

void Connection::JoinWaiting() {
  if (!in_waiting_) in_waiting_ = shared_->waiting.insert(shared_->waiting.end(), this);
}

void Connection::LeaveWaiting() {
  if (in_waiting_) shared_->waiting.erase(*in_waiting_);
  in_waiting_.reset();
}

bool Connection::PlaceIsFree() {
  std::lock_guard lock(shared_->mutex);
  return shared_->places_taken < shared_->options.connections_max || StalledReader() != nullptr;
}

// Where all are taken, one whose reader has stalled for long makes room.
bool Connection::TakePlace() {
  std::shared_ptr<Connection> stalled;
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->places_taken >= shared_->options.connections_max) {
      stalled = StalledReader();
      if (!stalled) return false;
      stalled->has_place_ = false;
      --shared_->places_taken;
    }
    ++shared_->places_taken;
    has_place_ = true;
    LeaveWaiting();
  }
  if (stalled) stalled->Close();
  return true;
}

void Connection::ReleasePlace() {
  std::lock_guard lock(shared_->mutex);
  if (has_place_) --shared_->places_taken;
  has_place_ = false;
  if (!closed_) JoinWaiting();
}

// The client may ask again, on another connection, as soon as it sees the end of its answer: its
// place is free by then, unless so much goes out that its reader could stall.
void Connection::FreePlaceBefore(size_t bytes) {
  if (unsent_bytes_ + bytes <= kSmallAnswerBytes) ReleasePlace();
}

// Under the shared mutex: one with a place that has not taken a byte of its answer for too long.
std::shared_ptr<Connection> Connection::StalledReader() {
  const auto now = std::chrono::steady_clock::now();
  const auto since = (now - shared_->options.stall_time_max).time_since_epoch().count();
  for (const std::shared_ptr<Connection>& each : shared_->open) {
    const auto began = each->write_began_.load(std::memory_order_relaxed);
    if (each->has_place_ && began != 0 && began < since) return each;
  }
  return nullptr;
}

}  // namespace bloomery::serve::internal

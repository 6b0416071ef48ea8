// One connection of the HTTP server: reads a request, hands it to the callbacks, writes the answer,
// keeps the deadlines and limits. Owns its socket; lives as long as its socket, its handlers or an
// exchange. Internal to the HTTP core: http_server.cc accepts connections and includes this, nobody
// else does, because it brings in Beast and asio.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "runtime/serve/http_body.h"
#include "runtime/serve/http_lane.h"
#include "runtime/serve/http_server.h"
#include "runtime/serve/http_transport.h"

namespace bloomery::serve::internal {

class Connection;
class Exchange;

// What all connections of one server share. A connection is waiting until its request is whole, and
// then has one of the places until its answer is out.
struct Shared {
  HttpOptions options;
  HttpCallbacks callbacks;
  boost::asio::io_context io;
  Lane small_lane{io};
  Lane long_lane{io};               // of bodies above options.long_body_bytes
  Lane large_lane{io};              // of bodies above options.large_body_bytes
  std::shared_ptr<TlsContext> tls;  // null: TCP listeners are plain
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::shared_ptr<Connection>> open;  // guarded by mutex
  std::list<Connection*> waiting;              // of `open`, longest first; guarded by mutex
  size_t places_taken = 0;                     // guarded by mutex
  bool stopping = false;                       // guarded by mutex
  std::atomic<size_t> body_bytes{0};
  std::atomic<size_t> unsent_bytes{0};
  std::atomic<bool> finished{false};  // no thread runs handlers any more

  bool Stopping() {
    std::lock_guard lock(mutex);
    return stopping;
  }
};

// One connection. All members are touched on its strand only, but for those that say otherwise.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `tls`: how the peer is to be spoken to; null: plainly.
  Connection(std::shared_ptr<Shared> shared, Socket socket, std::shared_ptr<TlsContext> tls);

  // Of Shared, under its mutex: joins the waiting ones as the newest, or leaves them.
  void JoinWaiting();
  void LeaveWaiting();

  size_t answer_bytes_max() const { return shared_->options.answer_bytes_max; }
  Strand executor() { return transport_.get_executor(); }
  bool Finished() const { return shared_->finished.load(); }

  void Start();
  void BeginStop();  // idle: close; busy: close after the answer
  void Close();

  // For Exchange; `serial` names the request the call is about.
  void Reply(uint64_t serial, const HttpResponse& response);
  void BeginStream(uint64_t serial, const HttpResponse& head, int ping_seconds);
  void Write(uint64_t serial, std::string bytes);
  void End(uint64_t serial);
  void OnGone(uint64_t serial, std::function<void()> callback);
  void AddToLog(uint64_t serial, std::vector<LogField> facts);
  void Dropped(uint64_t serial);

 private:
  // Errors and monitoring are always answered, however much waits for other readers.
  static constexpr size_t kSmallAnswerBytes = size_t{64} << 10;
  enum class Phase { kNone, kHandshake, kIdle, kHead, kBody, kWrite, kLinger };

  void OnHandshake(const ErrorCode& error);
  void ReadNext();
  void OnFirstBytes(const ErrorCode& error, size_t bytes);
  void ReadHead();
  void ReadHeadBytes();
  void OnHead(const ErrorCode& error, size_t bytes);
  void ReadBody();
  void ReadMoreBody();
  void OnBody(const ErrorCode& error);
  void Handle();
  void CallHandler(const std::shared_ptr<Exchange>& exchange);
  HttpRequest TakeHead();
  bool CountBody();
  void ReleaseBody();

  bool Reserved() const;
  bool PlaceIsFree();
  bool TakePlace();
  void ReleasePlace();
  void FreePlaceBefore(size_t bytes);
  std::shared_ptr<Connection> StalledReader();

  void Watch();
  void OnWatch(const ErrorCode& error, size_t bytes);
  void OnHalfClose();
  void Gone();

  bool Current(uint64_t serial) const {
    return serial == serial_ && state_ != State::kDone && !closed_;
  }
  std::string HeadOf(const HttpResponse& response, bool chunked);
  void RefuseRequest(int status, const std::string& message);
  void Answer(const HttpResponse& response);
  void Finish();
  void Queue(std::string bytes);
  void WriteNext();
  void OnWritten(const ErrorCode& error);
  void AnswerWritten();
  void Report(bool complete);
  void Linger();
  void EndSending();
  void ReadAndDrop();
  void ArmPing();

  void SetDeadline(Phase phase, std::chrono::milliseconds time);
  void ClearDeadline() { SetDeadline(Phase::kNone, {}); }
  void OnDeadline();

  enum class State { kReading, kAnswering, kStreaming, kDone };

  std::shared_ptr<Shared> shared_;
  Transport transport_;
  boost::asio::steady_timer deadline_timer_;
  boost::asio::steady_timer ping_timer_;

  bool has_place_ = false;                                      // guarded by the shared mutex
  std::optional<std::list<Connection*>::iterator> in_waiting_;  // guarded by the shared mutex
  std::atomic<std::chrono::steady_clock::rep> write_began_{0};  // 0: nothing is being written

  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<HttpBody>> parser_;
  HttpRequest request_;  // its body is the exchange's
  uint64_t serial_ = 0;
  State state_ = State::kDone;
  bool head_only_ = false;  // HEAD: no body goes out
  bool chunked_ = false;    // the running stream is framed by chunks (HTTP/1.1)
  bool http10_ = false;
  bool peer_is_here_ = false;  // loopback or a UNIX socket
  bool keep_alive_ = false;
  bool watching_ = false;
  bool peer_ended_ = false;  // its end was read: it sends nothing more
  bool closed_ = false;
  bool timed_out_ = false;
  size_t body_bytes_ = 0;            // counted among those of all connections
  std::weak_ptr<Exchange> in_lane_;  // the last that was given to a lane
  std::function<void()> on_gone_;
  std::chrono::steady_clock::time_point started_;  // when the head was read
  HttpOutcome outcome_;
  bool reported_ = true;  // of the present request

  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0;
  bool writing_ = false;
  std::string discard_;

  Phase phase_ = Phase::kNone;
  std::chrono::steady_clock::time_point deadline_;
  int ping_seconds_ = 0;
};

}  // namespace bloomery::serve::internal

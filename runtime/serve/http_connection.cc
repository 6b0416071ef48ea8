#include "runtime/serve/http_connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>
#include <cstring>
#include <iterator>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::serve::internal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr char kBusy[] = "too many requests are being answered; try again shortly";
constexpr std::string_view kPing = ":\n\n";  // a comment of an event stream

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string ChunkOf(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string size;
  for (size_t n = bytes.size(); n > 0; n /= 16) size.insert(size.begin(), kDigits[n % 16]);
  std::string chunk;
  chunk.reserve(size.size() + bytes.size() + 4);
  chunk.append(size).append("\r\n").append(bytes).append("\r\n");
  return chunk;
}

// Whether a request without Content-Length says in a known way where its body ends. The parser
// takes one with another last coding for one without a body, and the body for the next request.
bool FramingIsKnown(const http::fields& head) {
  const auto [first, last] = head.equal_range(http::field::transfer_encoding);
  if (first == last) return true;
  return std::next(first) == last && beast::iequals(first->value(), "chunked");
}

// HTTP/1.1 asks for exactly one Host; without it, or with two, a proxy and this server could mean
// different hosts.
bool HostIsKnown(const http::fields& head, bool http10) {
  const size_t hosts = head.count(http::field::host);
  return hosts == 1 || (hosts == 0 && http10);
}

// Whether the other end is a process of this machine, as far as its address tells.
bool PeerIsHere(const Socket& socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return false;
  const sockaddr* address = peer.data();
  if (address->sa_family == AF_UNIX) return true;
  if (address->sa_family == AF_INET && peer.size() >= sizeof(sockaddr_in)) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return asio::ip::address_v4(ntohl(v4.sin_addr.s_addr)).is_loopback();
  }
  if (address->sa_family != AF_INET6 || peer.size() < sizeof(sockaddr_in6)) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  const asio::ip::address_v6 six(bytes);
  if (six.is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, six).is_loopback();
  }
  return six.is_loopback();
}

}  // namespace

// The handle routes hold. Calls travel to the connection's strand; the connection ignores those of
// a request it has finished with.
class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, uint64_t serial, HttpRequest request)
      : connection_(std::move(connection)), serial_(serial), request_(std::move(request)) {}
  ~Exchange() override {
    Send([serial = serial_](Connection& c) { c.Dropped(serial); });
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return request_; }
  void AddToLog(std::vector<LogField> facts) override {
    Send([serial = serial_, f = std::move(facts)](Connection& c) mutable {
      c.AddToLog(serial, std::move(f));
    });
  }
  void SetHeaders(std::vector<HttpHeader> headers) override { headers_ = std::move(headers); }
  size_t answer_bytes_max() const override { return connection_->answer_bytes_max(); }
  void Reply(HttpResponse response) override {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    Send([serial = serial_, r = std::move(response)](Connection& c) { c.Reply(serial, r); });
  }
  void BeginStream(HttpResponse head, int ping_seconds) override {
    head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
    Send([serial = serial_, h = std::move(head), ping_seconds](Connection& c) {
      c.BeginStream(serial, h, ping_seconds);
    });
  }
  void Write(std::string bytes) override {
    Send([serial = serial_, b = std::move(bytes)](Connection& c) mutable {
      c.Write(serial, std::move(b));
    });
  }
  void End() override {
    Send([serial = serial_](Connection& c) { c.End(serial); });
  }
  void OnGone(std::function<void()> callback) override {
    Send([serial = serial_, cb = std::move(callback)](Connection& c) mutable {
      c.OnGone(serial, std::move(cb));
    });
  }

  void Post(std::function<void()> call) override {
    if (connection_->Finished()) return;
    {
      const std::lock_guard lock(lane_mutex_);
      if (lane_ != LaneState::kNone) return behind_.push_back(std::move(call));
    }
    asio::post(connection_->executor(), std::move(call));
  }

  // From the first of these on what is posted waits for the last. Entering says whether the handler
  // is to run: not where the client left before its turn, which frees the body at once, as a lane
  // may be held for seconds and bodies are counted by connections that are there.
  void WaitForLane() {
    const std::lock_guard lock(lane_mutex_);
    lane_ = LaneState::kWaiting;
  }
  void Abandon() {
    const std::lock_guard lock(lane_mutex_);
    if (lane_ != LaneState::kWaiting) return;
    lane_ = LaneState::kAbandoned;
    std::string().swap(request_.body);
  }
  bool EnterLane() {
    const std::lock_guard lock(lane_mutex_);
    if (lane_ != LaneState::kWaiting) return false;
    lane_ = LaneState::kRunning;
    return true;
  }
  void LeaveLane() {
    const std::lock_guard lock(lane_mutex_);
    lane_ = LaneState::kNone;
    for (auto& call : behind_) asio::post(connection_->executor(), std::move(call));
    behind_.clear();
  }

 private:
  // Once the server has stopped nothing may be queued: it would never run, and it would keep the
  // connection, which keeps the queue.
  template <typename Call>
  void Send(Call call) {
    if (connection_->Finished()) return;
    asio::post(connection_->executor(),
               [connection = connection_, c = std::move(call)]() mutable { c(*connection); });
  }

  std::shared_ptr<Connection> connection_;
  uint64_t serial_;
  HttpRequest request_;
  std::vector<HttpHeader> headers_;

  enum class LaneState { kNone, kWaiting, kAbandoned, kRunning };
  std::mutex lane_mutex_;
  LaneState lane_ = LaneState::kNone;          // guarded by the mutex
  std::vector<std::function<void()>> behind_;  // guarded by the mutex
};

Connection::Connection(std::shared_ptr<Shared> shared, Socket socket,
                       std::shared_ptr<TlsContext> tls)
    : shared_(std::move(shared)),
      transport_(std::move(socket), std::move(tls)),
      deadline_timer_(transport_.get_executor()),
      ping_timer_(transport_.get_executor()),
      // A head must fit, and so must each chunk's head and a trailer: neither counts as body.
      buffer_(shared_->options.head_bytes_max + limits::kWatchReadBytes) {}

void Connection::Start() {
  peer_is_here_ = PeerIsHere(transport_.socket());
  asio::post(executor(), [self = shared_from_this()] {
    if (!self->transport_.tls()) return self->ReadNext();
    self->SetDeadline(Phase::kHandshake, self->shared_->options.head_time_max);
    self->transport_.AsyncHandshake([self](const ErrorCode& error) { self->OnHandshake(error); });
  });
}

void Connection::OnHandshake(const ErrorCode& error) {
  if (closed_) return;
  if (!error && !timed_out_) return ReadNext();
  if (!error || error.category() != asio::error::get_ssl_category() ||
      ERR_GET_REASON(static_cast<uint32_t>(error.value())) != SSL_R_HTTP_REQUEST) {
    return Gone();
  }
  // Without TLS the client can read why; what it has sent went into the handshake.
  transport_.DropTls();
  ++serial_;
  request_ = {};
  started_ = Clock::now();
  RefuseRequest(400, "this port speaks TLS: use https://");
}

void Connection::BeginStop() {
  asio::post(executor(), [self = shared_from_this()] {
    self->keep_alive_ = false;
    const bool idle = self->state_ == State::kDone && self->unsent_.empty();
    if (idle && self->phase_ != Phase::kLinger) self->Close();
  });
}

void Connection::Close() {
  asio::post(executor(), [self = shared_from_this()] { self->Gone(); });
}

// Waits for the first byte of a request, then for its whole head.
void Connection::ReadNext() {
  if (closed_) return;
  if (shared_->Stopping()) return Gone();
  state_ = State::kDone;
  if (buffer_.size() > 0) return ReadHead();
  const HttpOptions& options = shared_->options;
  SetDeadline(Phase::kIdle, serial_ == 0 ? options.head_time_max : options.idle_time_max);
  // Without TLS it holds no buffer meanwhile. Under TLS bytes may be there when the socket has
  // none.
  if (!transport_.tls()) {
    transport_.socket().async_wait(
        Socket::wait_read,
        [self = shared_from_this()](const ErrorCode& error) { self->OnFirstBytes(error, 0); });
    return;
  }
  transport_.async_read_some(buffer_.prepare(limits::kWatchReadBytes),
                             [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                               self->OnFirstBytes(error, bytes);
                             });
}

void Connection::OnFirstBytes(const ErrorCode& error, size_t bytes) {
  if (closed_) return;
  buffer_.commit(bytes);
  if (error || timed_out_) return Gone();
  ReadHead();
}

void Connection::ReadHead() {
  if (closed_) return;  // closed between the first byte and here
  state_ = State::kReading;
  ++serial_;
  request_ = {};
  outcome_ = {};
  started_ = Clock::now();
  reported_ = true;    // as long as nothing has come of it
  head_only_ = false;  // of the request before: a refusal of this one has a body
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.head_bytes_max));
  parser_->body_limit(shared_->options.body_bytes_max);
  SetDeadline(Phase::kHead, shared_->options.head_time_max);
  if (!peer_ended_) return ReadHeadBytes();
  // A read that met the end is not tried again, and the end is told once; a wait asks anew.
  transport_.socket().async_wait(Socket::wait_read, [self = shared_from_this()](const ErrorCode&) {
    if (!self->closed_) self->ReadHeadBytes();
  });
}

void Connection::ReadHeadBytes() {
  http::async_read_header(transport_, buffer_, *parser_,
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            self->OnHead(error, bytes);
                          });
}

void Connection::OnHead(const ErrorCode& error, size_t bytes) {
  if (closed_) return;
  if (timed_out_) return RefuseRequest(408, "the request head did not arrive in time");
  // Beast looks at its limit only where it needs more bytes, so a head may pass it by a little.
  if (error == http::error::header_limit || error == http::error::buffer_overflow ||
      bytes > shared_->options.head_bytes_max)
    return RefuseRequest(431, "the request head is too large");
  if (error == http::error::body_limit) return RefuseRequest(413, "the request body is too large");
  if (error && error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return RefuseRequest(400, "malformed HTTP request: " + error.message());
  }
  if (error) return Gone();
  started_ = Clock::now();
  reported_ = false;
  const auto& head = parser_->get();
  http10_ = head.version() < 11;
  // A proxy of HTTP/1.0 knows no chunks: to it another request may begin inside this body.
  const bool framed_alike = !http10_ || head.count(http::field::transfer_encoding) == 0;
  keep_alive_ = parser_->keep_alive() && framed_alike && !shared_->Stopping();
  head_only_ = head.method() == http::verb::head;
  // Both framings at once is how requests are smuggled past a proxy.
  if (head.find(http::field::transfer_encoding) != head.end() &&
      head.find(http::field::content_length) != head.end()) {
    return RefuseRequest(400, "malformed HTTP request: Content-Length beside Transfer-Encoding");
  }
  if (!FramingIsKnown(head)) {
    return RefuseRequest(400, "malformed HTTP request: Transfer-Encoding other than chunked");
  }
  if (!HostIsKnown(head, http10_)) {
    return RefuseRequest(400, "malformed HTTP request: exactly one Host header is needed");
  }
  // Taken as it is such a body would be read as what it is not.
  const auto encoding = head.find(http::field::content_encoding);
  const std::string_view encoded =
      encoding == head.end() ? std::string_view("identity")
                             : std::string_view(encoding->value().data(), encoding->value().size());
  if (!EqualNoCase(encoded, "identity")) {
    return RefuseRequest(
        415, "Content-Encoding '" + Printable(encoded) + "': bodies are taken uncompressed");
  }
  request_ = TakeHead();
  if (!ParseTarget(std::string_view(head.target().data(), head.target().size()), request_)) {
    return RefuseRequest(400, "malformed HTTP request: bad escape in the target");
  }
  // Asked again once the body is here; until then it costs nothing to say so at once.
  if (!PlaceIsFree() && !Reserved()) return RefuseRequest(503, kBusy);
  if (std::optional<HttpResponse> refusal = shared_->callbacks.admit(request_)) {
    // Its body, if any, is not read: the connection cannot be used again.
    if (!parser_->is_done()) keep_alive_ = false;
    state_ = State::kAnswering;
    return Reply(serial_, *refusal);
  }
  if (!parser_->is_done() && beast::iequals(head[http::field::expect], "100-continue")) {
    Queue(std::string(kContinue));
  }
  ReadBody();
}

HttpRequest Connection::TakeHead() {
  HttpRequest request;
  const auto& head = parser_->get();
  request.from_this_machine = peer_is_here_;
  request.method.assign(head.method_string().data(), head.method_string().size());
  for (const auto& field : head) {
    request.headers.push_back({std::string(field.name_string().data(), field.name_string().size()),
                               std::string(field.value().data(), field.value().size())});
  }
  request.id = RequestIdOf(request.Header("X-Request-Id"));
  return request;
}

// Counts what has arrived of the body against the memory all bodies may take. The last part of that
// is for small ones, so that large ones which come slowly do not keep everyone out.
bool Connection::CountBody() {
  const size_t bytes = parser_->get().body().size();
  const size_t more = bytes - body_bytes_;
  if (more == 0) return true;
  const size_t all = shared_->options.bodies_bytes_max;
  const size_t most = bytes > limits::kSmallBodyBytesMax ? all - all / 8 : all;
  const size_t before = shared_->body_bytes.fetch_add(more);
  body_bytes_ = bytes;
  return before + more <= most;
}

void Connection::ReleaseBody() { shared_->body_bytes.fetch_sub(std::exchange(body_bytes_, 0)); }

void Connection::ReadBody() {
  SetDeadline(Phase::kBody, shared_->options.body_time_max);
  parser_->eager(true);
  ReadMoreBody();
}

void Connection::ReadMoreBody() {
  if (!CountBody()) return RefuseRequest(503, "too many request bodies in memory; try again");
  if (parser_->is_done()) return OnBody({});
  http::async_read_some(transport_, buffer_, *parser_,
                        [self = shared_from_this()](const ErrorCode& error, size_t) {
                          if (self->closed_ || self->timed_out_ || error)
                            return self->OnBody(error);
                          self->ReadMoreBody();
                        });
}

void Connection::OnBody(const ErrorCode& error) {
  if (closed_) return;
  if (timed_out_) return RefuseRequest(408, "the request body did not arrive in time");
  if (error == http::error::body_limit) return RefuseRequest(413, "the request body is too large");
  if (error == http::error::buffer_overflow) {
    return RefuseRequest(431, "a chunk's head or the trailer is too large");
  }
  if (error && error != http::error::partial_message &&
      error.category() == http::make_error_code(http::error::bad_method).category()) {
    return RefuseRequest(400, "malformed HTTP request: " + error.message());
  }
  if (error) return Gone();
  Handle();
}

void Connection::Handle() {
  if (!TakePlace()) {
    if (!Reserved()) return RefuseRequest(503, kBusy);
    keep_alive_ = false;
  }
  ClearDeadline();
  HttpRequest whole = request_;  // the head stays: a refusal of the answer is made from it
  whole.body = std::move(parser_->get().body());
  parser_.reset();
  state_ = State::kAnswering;
  on_gone_ = nullptr;
  Watch();
  const size_t bytes = whole.body.size();
  auto exchange = std::make_shared<Exchange>(shared_from_this(), serial_, std::move(whole));
  const HttpOptions& options = shared_->options;
  if (bytes == 0) return CallHandler(exchange);  // what needs none is answered from what is there
  Lane& lane = bytes > options.large_body_bytes  ? shared_->large_lane
               : bytes > options.long_body_bytes ? shared_->long_lane
                                                 : shared_->small_lane;
  exchange->WaitForLane();
  in_lane_ = exchange;
  lane.Post([self = shared_from_this(), exchange] {
    if (!exchange->EnterLane()) return;
    self->CallHandler(exchange);
    exchange->LeaveLane();
  });
}

// In a lane, or on the strand.
void Connection::CallHandler(const std::shared_ptr<Exchange>& exchange) {
  try {
    shared_->callbacks.handle(exchange);
  } catch (const std::exception& e) {
    // Routes answer their own errors; this is the last net, and the text stays out of the answer.
    exchange->Reply(shared_->callbacks.refuse(500, "internal error", exchange->request()));
  }
}

// Reads while an answer is being made: the only way to learn that the client has gone. What a
// pipelining client sends early is kept for the next request, up to the size of a head.
void Connection::Watch() {
  if (watching_ || closed_ || buffer_.size() >= shared_->options.head_bytes_max) return;
  watching_ = true;
  transport_.async_read_some(buffer_.prepare(limits::kWatchReadBytes),
                             [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                               self->OnWatch(error, bytes);
                             });
}

void Connection::OnWatch(const ErrorCode& error, size_t bytes) {
  watching_ = false;
  if (closed_) return;
  buffer_.commit(bytes);
  // Many clients end TLS by closing the connection under it.
  const bool ends = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
  if (ends) peer_ended_ = true;
  if (state_ == State::kDone) {
    // The answer is out or on its way; the watch only had to end.
    // What came before the client's end is still answered.
    const bool ended = error && error != asio::error::operation_aborted;
    if (ended && buffer_.size() == 0) keep_alive_ = false;
    if (!writing_) AnswerWritten();
    return;
  }
  if (ends) return OnHalfClose();
  if (error) return Gone();
  Watch();
}

// The client will send nothing more. It may have closed, or only its sending side, which HTTP
// allows and which looks the same. Bytes that mean nothing tell: a socket that nobody holds any
// more resets the connection on them. To HTTP/1.0 no such bytes are known, so its end counts as
// gone.
void Connection::OnHalfClose() {
  if (http10_) return Gone();
  if (buffer_.size() == 0) keep_alive_ = false;
  transport_.socket().async_wait(Socket::wait_error,
                                 [self = shared_from_this()](const ErrorCode& error) {
                                   if (!error) self->Gone();
                                 });
  if (state_ == State::kStreaming) return Write(serial_, std::string(kPing));
  Queue(std::string(kContinue));
}

void Connection::Gone() {
  if (std::exchange(closed_, true)) return;
  ErrorCode ignored;
  transport_.socket().shutdown(Socket::shutdown_both, ignored);
  transport_.socket().close(ignored);
  deadline_timer_.cancel();
  ping_timer_.cancel();
  if (const auto exchange = in_lane_.lock()) exchange->Abandon();
  ReleaseBody();
  shared_->unsent_bytes.fetch_sub(std::exchange(unsent_bytes_, 0));
  const auto callback = std::exchange(on_gone_, nullptr);
  const bool answering = state_ == State::kAnswering || state_ == State::kStreaming;
  if (callback && answering) callback();
  // Behind what the callback has to say for the log.
  if (!reported_) {
    asio::post(executor(), [self = shared_from_this()] { self->Report(false); });
  }
  {
    std::lock_guard lock(shared_->mutex);
    if (has_place_) --shared_->places_taken;
    has_place_ = false;
    LeaveWaiting();
    shared_->open.erase(shared_from_this());
  }
  shared_->changed.notify_all();
}

std::string Connection::HeadOf(const HttpResponse& response, bool chunked) {
  if (request_.id.empty()) request_.id = RequestIdOf({});  // its head could not be read
  outcome_.status = response.status;
  outcome_.first_byte_ms = MillisecondsSince(started_);
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(ReasonPhrase(response.status)).append("\r\nServer: bloomery\r\n");
  head.append("X-Request-Id: ").append(request_.id).append("\r\n");
  if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
  for (const HttpHeader& header : response.headers) {
    head += header.name + ": " + header.value + "\r\n";
  }
  if (chunked) {
    if (!http10_) head += "Transfer-Encoding: chunked\r\n";
  } else if (response.status != 304) {  // there a length would be that of the body left out
    head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  }
  head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

void Connection::RefuseRequest(int status, const std::string& message) {
  reported_ = false;
  outcome_.facts.emplace_back("error", message);
  keep_alive_ = false;
  state_ = State::kAnswering;
  Reply(serial_, shared_->callbacks.refuse(status, message, request_));
}

void Connection::Reply(uint64_t serial, const HttpResponse& response) {
  if (!Current(serial) || state_ != State::kAnswering) return;
  ReleaseBody();  // before the client can see the answer and send the next
  const size_t bytes = response.body.size();
  const HttpOptions& options = shared_->options;
  const auto refuse = [&](int status, const std::string& message) {
    Answer(shared_->callbacks.refuse(status, message, request_));
  };
  if (bytes > options.answer_bytes_max) {
    return refuse(400, AnswerTooLarge(options.answer_bytes_max));
  }
  if (bytes > kSmallAnswerBytes &&
      shared_->unsent_bytes.load() + bytes > options.answers_bytes_max) {
    return refuse(503, "too many answers wait for their readers; try again");
  }
  Answer(response);
}

void Connection::Answer(const HttpResponse& response) {
  std::string head = HeadOf(response, false);
  if (!head_only_) head += response.body;
  FreePlaceBefore(head.size());
  Queue(std::move(head));
  Finish();
}

void Connection::BeginStream(uint64_t serial, const HttpResponse& head, int ping_seconds) {
  if (!Current(serial) || state_ != State::kAnswering) return;
  // HTTP/1.0 knows no chunks: the end of the connection ends the body.
  if (http10_) keep_alive_ = false;
  chunked_ = !http10_;
  state_ = State::kStreaming;
  ping_seconds_ = ping_seconds;
  Queue(HeadOf(head, true));
}

void Connection::Write(uint64_t serial, std::string bytes) {
  if (!Current(serial) || state_ != State::kStreaming || bytes.empty()) return;
  Queue(chunked_ ? ChunkOf(bytes) : std::move(bytes));
}

void Connection::End(uint64_t serial) {
  if (!Current(serial) || state_ != State::kStreaming) return;
  ReleaseBody();
  FreePlaceBefore(0);
  if (chunked_) Queue("0\r\n\r\n");
  Finish();
}

void Connection::OnGone(uint64_t serial, std::function<void()> callback) {
  if (serial != serial_) return callback();
  if (closed_) return callback();
  if (state_ == State::kDone) return;
  on_gone_ = std::move(callback);
}

void Connection::AddToLog(uint64_t serial, std::vector<LogField> facts) {
  if (serial != serial_ || reported_) return;
  std::move(facts.begin(), facts.end(), std::back_inserter(outcome_.facts));
}

void Connection::Dropped(uint64_t serial) {
  if (!Current(serial)) return;
  if (state_ == State::kAnswering) {
    return Reply(serial, shared_->callbacks.refuse(500, "internal error", request_));
  }
  // A stream cut short must not look complete: no last chunk, just the end of the connection.
  Report(false);
  keep_alive_ = false;
  Finish();
}

void Connection::Finish() {
  state_ = State::kDone;
  on_gone_ = nullptr;
  ping_timer_.cancel();
  ReleaseBody();
  if (!writing_) AnswerWritten();
}

void Connection::Queue(std::string bytes) {
  if (closed_) return;
  const bool behind = unsent_bytes_ > 0;
  unsent_bytes_ += bytes.size();
  const size_t unsent_of_all = shared_->unsent_bytes.fetch_add(bytes.size()) + bytes.size();
  // A stream that piles up is a client that stalls; a whole answer was measured by Reply.
  if (state_ == State::kStreaming &&
      (unsent_bytes_ > shared_->options.unsent_bytes_max ||
       (behind && unsent_of_all > shared_->options.answers_bytes_max))) {
    return Gone();
  }
  unsent_.push_back(std::move(bytes));
  if (!writing_) WriteNext();
}

void Connection::WriteNext() {
  writing_ = true;
  ping_timer_.cancel();
  write_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  SetDeadline(Phase::kWrite, shared_->options.write_time_max);
  asio::async_write(
      transport_, asio::buffer(unsent_.front()),
      [self = shared_from_this()](const ErrorCode& error, size_t) { self->OnWritten(error); });
}

void Connection::OnWritten(const ErrorCode& error) {
  writing_ = false;
  write_began_.store(0, std::memory_order_relaxed);
  if (closed_) return;
  if (error || timed_out_) return Gone();
  unsent_bytes_ -= unsent_.front().size();
  outcome_.bytes += unsent_.front().size();
  shared_->unsent_bytes.fetch_sub(unsent_.front().size());
  unsent_.pop_front();
  if (!unsent_.empty()) return WriteNext();
  if (state_ == State::kReading) return SetDeadline(Phase::kBody, shared_->options.body_time_max);
  ClearDeadline();
  if (state_ == State::kDone) return AnswerWritten();
  if (state_ == State::kStreaming) ArmPing();
}

void Connection::ArmPing() {
  if (ping_seconds_ <= 0) return;
  ping_timer_.expires_after(std::chrono::seconds(ping_seconds_));
  ping_timer_.async_wait([self = shared_from_this(), serial = serial_](const ErrorCode& error) {
    if (!error) self->Write(serial, std::string(kPing));
  });
}

// The answer is on the wire. The watch, if it still reads, is ended first: two reads at once would
// tear the next request apart.
void Connection::AnswerWritten() {
  if (closed_ || !unsent_.empty()) return;
  ReleasePlace();
  Report(true);
  if (watching_) {
    ErrorCode ignored;
    transport_.socket().cancel(ignored);
    return;
  }
  if (keep_alive_) return ReadNext();
  Linger();
}

// The line of the log about the request is due, once.
void Connection::Report(bool complete) {
  if (std::exchange(reported_, true) || !shared_->callbacks.done) return;
  outcome_.complete = complete;
  outcome_.ms = MillisecondsSince(started_);
  shared_->callbacks.done(request_, outcome_);
}

// Closing with unread input would reset the connection and could destroy the answer on its way:
// send the end, then read what still comes for a moment.
void Connection::Linger() {
  if (phase_ == Phase::kLinger) return;
  SetDeadline(Phase::kLinger, std::chrono::milliseconds(limits::kLingerMillisecondsMax));
  if (!transport_.tls()) return EndSending();
  transport_.AsyncShutdown([self = shared_from_this()](const ErrorCode&) {
    if (self->closed_) return;
    self->transport_.DropTls();
    self->EndSending();
  });
}

void Connection::EndSending() {
  ErrorCode ignored;
  transport_.socket().shutdown(Socket::shutdown_send, ignored);
  if (peer_ended_) return Gone();  // nothing is unread
  discard_.resize(size_t{64} << 10);
  ReadAndDrop();
}

void Connection::ReadAndDrop() {
  transport_.async_read_some(asio::buffer(discard_),
                             [self = shared_from_this()](const ErrorCode& error, size_t) {
                               if (error || self->closed_) return self->Gone();
                               self->ReadAndDrop();
                             });
}

void Connection::SetDeadline(Phase phase, std::chrono::milliseconds time) {
  if (closed_) return;
  phase_ = phase;
  timed_out_ = false;
  if (phase == Phase::kNone) {
    deadline_timer_.cancel();
    return;
  }
  deadline_ = Clock::now() + time;
  deadline_timer_.expires_at(deadline_);
  deadline_timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (!error) self->OnDeadline();
  });
}

void Connection::OnDeadline() {
  // A handler already queued when the deadline moved on must not act on the new one.
  if (closed_ || phase_ == Phase::kNone || Clock::now() < deadline_) return;
  timed_out_ = true;
  if (phase_ == Phase::kLinger || phase_ == Phase::kWrite) return Gone();
  ErrorCode ignored;
  transport_.socket().cancel(ignored);
}

}  // namespace bloomery::serve::internal

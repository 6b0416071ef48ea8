// The HTTP/1.1 server: listeners, connections, limits and deadlines. Owns its sockets, a small pool
// of threads for them and some for handlers; each connection runs on one strand, so its state needs
// no lock. Knows no route: `admit` sees a request's head before its body is read, `handle` sees the
// whole request. Deadlines are totals for the head and for the body, never per read, and a request
// has no place among those that are answered before it is whole, so slow senders keep nobody out; a
// client that closes while its answer is being made is noticed at once (OnGone), one that only ends
// its sending side is answered.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/serve/http.h"

namespace bloomery::serve {

struct HttpOptions {
  std::vector<std::string> hosts{"127.0.0.1"};  // names, addresses, or unix:PATH or *.sock
  int port = 0;                                 // 0 binds any free port (one TCP host only)
  bool reuse_port = false;
  // PEM texts: TCP listeners speak TLS with these, UNIX sockets never do. Empty: plain.
  std::string tls_certificates;
  std::string tls_key;
  int threads = 2;
  size_t connections_max = limits::kConnectionsMax;  // with a request that is being answered
  // Without one. Half of the descriptors the process may have bound them as well; where there are
  // more, the one that has waited longest is closed.
  size_t waiting_max = limits::kWaitingConnectionsMax;
  size_t head_bytes_max = limits::kRequestHeadBytesMax;
  size_t body_bytes_max = limits::kRequestBodyBytesMax;
  // Handlers of bodies up to the first, up to the second and above run on threads of their own, so
  // that none waits for a larger one: tokenising as much as the first takes some 10 ms, the second
  // is where the memory for bodies begins to be rationed, and above it one runs at a time.
  size_t long_body_bytes = size_t{64} << 10;
  size_t large_body_bytes = limits::kSmallBodyBytesMax;
  // That many more at once where handlers take long: each has a part of a core, and each of the
  // second kind may take hundreds of MiB for what a template makes.
  size_t slow_handlers_max = 8;
  size_t slow_long_handlers_max = 3;
  size_t bodies_bytes_max = limits::kRequestBodiesBytesMax;  // over all connections
  size_t unsent_bytes_max = limits::kUnsentBytesMax;         // of one stream
  size_t answer_bytes_max = limits::kAnswerBytesMax;         // of one whole answer
  size_t answers_bytes_max = limits::kAnswersBytesMax;       // unsent, over all connections
  std::chrono::milliseconds head_time_max = std::chrono::seconds(limits::kRequestHeadSecondsMax);
  std::chrono::milliseconds body_time_max = std::chrono::seconds(limits::kRequestBodySecondsMax);
  std::chrono::milliseconds idle_time_max = std::chrono::seconds(limits::kKeepAliveSecondsMax);
  std::chrono::milliseconds write_time_max = std::chrono::seconds(3600);
  // A reader that takes no byte for so long is cut off where its place is wanted.
  std::chrono::milliseconds stall_time_max = std::chrono::seconds(limits::kStalledReaderSecondsMax);
};

struct HttpCallbacks {
  // Sees the head (body still empty); an answer refuses the request without reading its body.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> admit;
  // Answers the request through the exchange, now or later from any thread. Without a body it runs
  // as a call posted to the exchange would, and must be short; with one on a thread for handlers,
  // of which more join where they take long: what is posted meanwhile waits for its end,
  // so they never run beside each other.
  std::function<void(std::shared_ptr<HttpExchange>)> handle;
  // Makes the answer to a request that never reached a route (malformed, too large, too slow);
  // `request` has what was read of it, perhaps nothing.
  std::function<HttpResponse(int status, const std::string& message, const HttpRequest& request)>
      refuse;
  // Whether a request (its head) is answered where all places are taken, too. Null: none is.
  std::function<bool(const HttpRequest& request)> reserved;
  // What became of each request that was answered or handled; its body is not given any more. Null:
  // nobody asks.
  std::function<void(const HttpRequest& request, const HttpOutcome& outcome)> done;
};

// An address that cannot be resolved or bound (exit code 71).
class BindError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HttpServer {
 public:
  // Binds and listens. Error(kUsage) for options that contradict each other, BindError for an
  // address that cannot be resolved or bound.
  HttpServer(HttpOptions options, HttpCallbacks callbacks);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // What the constructor would throw for `options`, without listening; an address may be taken
  // between this and that.
  static void Check(const HttpOptions& options);

  // Starts the threads; returns at once.
  void Start();

  // One URL a listener ("http://127.0.0.1:8080", "unix:/run/b.sock"), with the port really bound.
  const std::vector<std::string>& urls() const;
  int port() const;  // of the first TCP listener; 0 when there is none

  // Accepts nothing more, lets answers in progress finish for at most `drain`, then closes every
  // connection and joins the threads. Safe to call twice.
  void Stop(std::chrono::milliseconds drain);

  size_t connections() const;  // with a place

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace bloomery::serve

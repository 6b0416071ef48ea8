// The server as programs use it: binds at once and answers 503 "Loading model", serves a seat when
// one is given, stops in order. Owns the HTTP server and the API; the seat stays the caller's.
//
//   Server server(settings);          // listening
//   server.SetReady(seat);            // serving
//   server.Stop(std::chrono::seconds(limits::kDrainSecondsMax));
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/api.h"
#include "runtime/serve/http_server.h"
#include "runtime/serve/settings.h"

namespace bloomery::serve {

class Server {
 public:
  // Throws what HttpServer throws. `settings` must outlive the server.
  explicit Server(const ServeSettings& settings);
  // For tests: other limits and deadlines than those of base/limits.h.
  Server(const ServeSettings& settings, HttpOptions options);
  ~Server();

  const std::vector<std::string>& urls() const { return http_->urls(); }
  int port() const { return http_->port(); }

  // What POST /shutdown does; it must not wait for the server. Before SetReady; without it the
  // route is not offered.
  void OnShutdown(std::function<void()> shut_down) { api_.OnShutdown(std::move(shut_down)); }

  // `seat` must outlive the server, or at least Stop.
  void SetReady(const Seat& seat);

  // New requests are refused, running ones get `drain` to end, then they are failed; returns when
  // no connection is left.
  void Stop(std::chrono::milliseconds drain);

  static HttpOptions OptionsOf(const ServeSettings& settings);

 private:
  Api api_;
  std::unique_ptr<HttpServer> http_;
  const Seat* seat_ = nullptr;
};

}  // namespace bloomery::serve

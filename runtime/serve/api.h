// The API behind the HTTP server: which routes there are, who may call them and when. Answers while
// the model loads (503), knows keys and origins, and turns what handlers throw into error bodies.
// Any thread; its only state is which seat is served and whether the server is stopping.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/http.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {

class Api {
 public:
  // `settings` must outlive the Api; its keys are the complete set (flags and key file).
  explicit Api(const ServeSettings& settings);

  // The callbacks of HttpServer.
  std::optional<HttpResponse> Admit(const HttpRequest& request) const;
  void Handle(const std::shared_ptr<HttpExchange>& exchange) const;
  HttpResponse Refuse(int status, const std::string& message, const HttpRequest& request) const;
  bool Reserved(const HttpRequest& request) const;
  // Writes the request's line of the log.
  void Done(const HttpRequest& request, const HttpOutcome& outcome) const;

  // From now on requests reach the seat, which must outlive the last of them.
  void SetReady(const Seat& seat) { seat_.store(&seat, std::memory_order_release); }
  // What POST /shutdown calls after its answer; without one the route is not offered. Before the
  // first request.
  void OnShutdown(std::function<void()> shut_down) { shut_down_ = std::move(shut_down); }
  // From now on requests get 503.
  void SetStopping() { stopping_.store(true, std::memory_order_release); }

  static bool KeyMatches(const std::vector<std::string>& keys, const HttpRequest& request);

 private:
  std::vector<HttpHeader> CorsHeaders(const HttpRequest& request) const;
  HttpResponse WithCors(HttpResponse response, const HttpRequest& request) const;
  std::optional<std::string> RoutePath(const HttpRequest& request) const;

  const ServeSettings& settings_;
  std::function<void()> shut_down_;
  // What runs, not what the API is: handling a request is const.
  std::unique_ptr<ReasoningControls> controls_ = std::make_unique<ReasoningControls>();
  std::unique_ptr<MetricsReadings> metrics_ = std::make_unique<MetricsReadings>();
  std::atomic<const Seat*> seat_{nullptr};
  std::atomic<bool> stopping_{false};
};

}  // namespace bloomery::serve

#include "runtime/serve/server.h"

#include <algorithm>
#include <thread>

namespace bloomery::serve {
namespace {

// After the engine has ended: time for the last bytes to leave.
constexpr std::chrono::milliseconds kFlushTimeMax{1000};
// Answering is parsing and tokenising; more threads than this would take cores from the passes.
constexpr unsigned kAutomaticThreadsMax = 4;

}  // namespace

HttpOptions Server::OptionsOf(const ServeSettings& settings) {
  HttpOptions options;
  options.hosts = settings.hosts;
  options.port = settings.port;
  options.reuse_port = settings.reuse_port;
  options.tls_certificates = settings.ssl_certificates;
  options.tls_key = settings.ssl_key;
  options.write_time_max = std::chrono::seconds(settings.timeout_s);
  options.threads = settings.http_threads > 0
                        ? settings.http_threads
                        : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2U,
                                                      kAutomaticThreadsMax));
  return options;
}

Server::Server(const ServeSettings& settings) : Server(settings, OptionsOf(settings)) {}

Server::Server(const ServeSettings& settings, HttpOptions options) : api_(settings) {
  HttpCallbacks callbacks;
  callbacks.admit = [this](const HttpRequest& request) { return api_.Admit(request); };
  callbacks.handle = [this](const std::shared_ptr<HttpExchange>& exchange) {
    api_.Handle(exchange);
  };
  callbacks.refuse = [this](int status, const std::string& message, const HttpRequest& request) {
    return api_.Refuse(status, message, request);
  };
  callbacks.reserved = [this](const HttpRequest& request) { return api_.Reserved(request); };
  callbacks.done = [this](const HttpRequest& request, const HttpOutcome& outcome) {
    api_.Done(request, outcome);
  };
  http_ = std::make_unique<HttpServer>(std::move(options), std::move(callbacks));
  http_->Start();
}

Server::~Server() { Stop(std::chrono::milliseconds(0)); }

void Server::SetReady(const Seat& seat) {
  seat_ = &seat;
  api_.SetReady(seat);
}

void Server::Stop(std::chrono::milliseconds drain) {
  api_.SetStopping();
  // The engine ends first: its last events are the ends of the answers in progress.
  if (seat_ != nullptr) seat_->engine->Stop(drain);
  seat_ = nullptr;  // a second call must not reach for an engine that may be gone
  http_->Stop(kFlushTimeMax);
}

}  // namespace bloomery::serve

// GET over HTTP/1.1 as a hub needs it: redirects followed, the token shown to the hub's own origin
// and nobody else, a file continued from a place, bodies handed on in pieces. Statuses are
// returned, not thrown; NetworkError for what never became an answer, Error(kDownload) for an
// answer that is none. One client for one thread at a time; each call connects anew.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/limits.h"
#include "runtime/hub/stream.h"
#include "runtime/hub/url.h"

namespace bloomery::hub {

struct HttpClientOptions {
  std::chrono::milliseconds connect_time_max = std::chrono::seconds(limits::kHubConnectSecondsMax);
  std::chrono::milliseconds silence_max = std::chrono::seconds(limits::kHubSilenceSecondsMax);
  std::string user_agent = "bloomery";
  // HTTPS_PROXY, HTTP_PROXY's namesake for TLS, NO_PROXY and SSL_CERT_FILE are read from here.
  std::map<std::string, std::string> environment{};
};

struct HttpGet {
  Url url{};
  std::string token{};  // empty: none. Sent to url's origin only
  uint64_t from = 0;    // the body's first byte; above 0 a range is asked for
};

struct HttpAnswer {
  int status = 0;
  std::optional<uint64_t> length{};       // Content-Length
  std::optional<uint64_t> range_begin{};  // Content-Range, of a 206
  std::optional<uint64_t> range_total{};
  std::optional<int> retry_after_s{};
  std::string link{};   // Link
  std::string error{};  // a short body of an answer that is no success
  Url url{};            // that gave this answer, after redirects
};

class HttpClient {
 public:
  explicit HttpClient(HttpClientOptions options);

  // `begin` sees a success (2xx) before its body, `sink` the body's pieces. What they throw ends
  // the call and passes through. NetworkError also for a body that is cut.
  HttpAnswer Get(const HttpGet& get, const std::function<void(const HttpAnswer&)>& begin,
                 const std::function<void(std::span<const std::byte>)>& sink);

 private:
  StreamOptions OptionsFor(const Url& url) const;
  std::string Variable(const char* lower, const char* upper) const;

  HttpClientOptions options_;
};

}  // namespace bloomery::hub

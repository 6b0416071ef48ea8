// What the HTTP core hands to the routes and takes back: one request, one response, and the
// exchange that joins them. Plain types: no Beast or asio name appears here, so that only
// http_connection.cc and http_server.cc pay for them. A request is complete (head and body) before
// a route sees it; an answer is either whole (Reply) or a stream (BeginStream, Write, End).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/log_event.h"

namespace bloomery::serve {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string id;      // in every line of the log about it, and in its answer as X-Request-Id
  std::string method;  // upper case, as sent
  std::string path;    // percent-decoded, without the query
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  std::vector<HttpHeader> headers;
  std::string body;
  bool from_this_machine = false;  // over loopback or a UNIX socket

  // First value of a header, compared without case; "" when absent.
  std::string_view Header(std::string_view name) const;
  // First value of a query parameter; absent when the parameter is.
  std::optional<std::string_view> Query(std::string_view name) const;
};

inline constexpr std::string_view kJsonType = "application/json; charset=utf-8";
inline constexpr std::string_view kEventStreamType = "text/event-stream";

struct HttpResponse {
  int status = 200;
  std::string content_type{kJsonType};
  std::vector<HttpHeader> headers;
  std::string body;
};

// What became of a request, when the last byte of its answer is written or its client has gone.
struct HttpOutcome {
  int status = 0;               // 0: the client had gone before an answer began
  bool complete = false;        // the whole answer was written
  uint64_t bytes = 0;           // written, heads and framing included
  double ms = 0;                // since the head was read
  double first_byte_ms = 0;     // till the answer began
  std::vector<LogField> facts;  // what AddToLog was given
};

// One request and its answer. Every function may be called from any thread and never blocks; after
// the client has gone they do nothing. An exchange that is dropped without an answer becomes a 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  // Headers for whatever answer follows. Before any of the calls below, by one thread.
  virtual void SetHeaders(std::vector<HttpHeader> headers) = 0;

  // Facts for the line of the log about this request. Before the answer's end.
  virtual void AddToLog(std::vector<LogField> facts) = 0;

  // The whole answer. One whose body is larger than answer_bytes_max() becomes a 400 that says so.
  virtual size_t answer_bytes_max() const = 0;
  virtual void Reply(HttpResponse response) = 0;

  // Starts a chunked answer with the status, type and headers of `head` (its body is ignored).
  // While nothing is written for `ping_seconds` the SSE comment ":" goes out; 0 or less sends none.
  virtual void BeginStream(HttpResponse head, int ping_seconds) = 0;
  virtual void Write(std::string bytes) = 0;
  virtual void End() = 0;

  // `callback` runs once, on a thread of the HTTP pool, if the client goes away before the answer
  // is complete; at once when it has gone already. At most one callback an exchange.
  virtual void OnGone(std::function<void()> callback) = 0;

  // Runs `call` on a thread of the HTTP pool, after those posted before it and never beside another
  // one or beside the handler, however long that takes: the place to turn events of other threads
  // into an answer.
  virtual void Post(std::function<void()> call) = 0;
};

inline constexpr size_t kRequestIdBytesMax = 128;  // tracers write 55

// The id of a request whose client calls it `given` (its X-Request-Id): that, where it is at most
// kRequestIdBytesMax letters, digits and "-_.:", else a new one of 32 hexadecimal digits.
std::string RequestIdOf(std::string_view given);

// Equal but for the case of ASCII letters.
bool EqualNoCase(std::string_view a, std::string_view b);

// Whether an Origin header names this machine: exactly its name or address, with or without a port.
bool IsLocalOrigin(std::string_view origin);

// Why an answer of more than `bytes_max` is not given.
std::string AnswerTooLarge(size_t bytes_max);

// Splits a request target into path and query and decodes both; of a whole URL ("http://host/path")
// the scheme and the host are dropped. False on a bad escape or a NUL.
bool ParseTarget(std::string_view target, HttpRequest& request);

// The standard reason phrase of a status ("Not Found"); "Status" for one not listed.
std::string_view ReasonPhrase(int status);

}  // namespace bloomery::serve

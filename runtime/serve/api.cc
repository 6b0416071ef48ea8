#include "runtime/serve/api.h"

#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/errors.h"
#include "runtime/serve/page.h"

namespace bloomery::serve {
namespace {

// Of what clients send, in the log.
constexpr size_t kLoggedPathBytes = 200;
constexpr size_t kLoggedMethodBytes = 20;

struct Route {
  std::string_view method;
  std::string_view path;
  void (*handle)(const RouteContext&);  // null: known, but not offered (501)
  std::string_view feature;             // what a 501 names
  bool open = false;                    // needs no key, and no place among the connections
  bool quiet = false;                   // not logged
  ErrorForm form = ErrorForm::kOpenAi;
};

constexpr Route kRoutes[] = {
    {"GET", "/health", HandleHealth, "", true, true},
    {"GET", "/v1/health", HandleHealth, "", true, true},
    {"GET", "/v1/models", HandleModels, "", false, true},
    {"GET", "/models", HandleModels, "", false, true},
    {"GET", "/props", HandleProps, "", false, true},
    {"POST", "/props", HandleSetProps, ""},
    {"GET", "/slots", HandleSlots, "", false, true},
    {"GET", "/metrics", HandleMetrics, "", false, true},
    {"GET", "/residency", HandleResidency, "", false, true},
    {"POST", "/tokenize", HandleTokenize, ""},
    {"POST", "/detokenize", HandleDetokenize, ""},
    {"POST", "/apply-template", HandleApplyTemplate, ""},
    {"POST", "/completion", HandleCompletion, ""},
    {"POST", "/completions", HandleCompletion, ""},
    {"POST", "/v1/completions", HandleOpenAiCompletion, ""},
    {"POST", "/v1/chat/completions", HandleOpenAiChat, ""},
    {"POST", "/chat/completions", HandleOpenAiChat, ""},
    {"POST", "/v1/chat/completions/input_tokens", HandleInputTokens, ""},
    {"POST", "/chat/completions/input_tokens", HandleInputTokens, ""},

    {"POST", "/v1/chat/completions/control", HandleChatControl, ""},
    {"POST", "/chat/completions/control", HandleChatControl, ""},
    {"POST", "/v1/responses", HandleResponses, ""},
    {"POST", "/responses", HandleResponses, ""},
    {"POST", "/v1/responses/input_tokens", HandleResponsesInputTokens, ""},
    {"POST", "/responses/input_tokens", HandleResponsesInputTokens, ""},
    {"POST", "/v1/messages", HandleMessages, "", false, false, ErrorForm::kAnthropic},
    {"POST", "/v1/messages/count_tokens", HandleCountTokens, "", false, false,
     ErrorForm::kAnthropic},
    {"POST", "/infill", HandleInfill, ""},
    {"POST", "/embedding", nullptr, "embeddings"},
    {"POST", "/embeddings", nullptr, "embeddings"},
    {"POST", "/v1/embeddings", nullptr, "embeddings"},
    {"POST", "/rerank", nullptr, "reranking"},
    {"POST", "/reranking", nullptr, "reranking"},
    {"POST", "/v1/rerank", nullptr, "reranking"},
    {"POST", "/v1/reranking", nullptr, "reranking"},
    {"GET", "/lora-adapters", HandleAdapters, ""},
    {"POST", "/lora-adapters", HandleSetAdapters, ""},
    {"POST", "/residency/reset", HandleResetResidency, ""},
    {"POST", "/shutdown", HandleShutdown, ""},
    {"POST", "/v1/systemone", nullptr, "decision models"},
    {"POST", "/v1/audio/transcriptions", nullptr, "audio"},
    {"POST", "/audio/transcriptions", nullptr, "audio"},
    {"GET", "/tools", nullptr, "tools of the server's own"},
    {"POST", "/tools", nullptr, "tools of the server's own"},
    {"GET", "/cors-proxy", nullptr, "a proxy for pages"},
    {"POST", "/cors-proxy", nullptr, "a proxy for pages"},
    {"POST", "/models/load", nullptr, "several models"},
    {"POST", "/models/unload", nullptr, "several models"},
};

// With what is behind the path as a value.
constexpr Route kPrefixed[] = {
    {"POST", "/slots/", HandleSlotAction, ""},
    {"GET", "/v1/models/", HandleModels, "", false, true},
    {"GET", "/models/", HandleModels, "", false, true},
};

const Route* FindRoute(std::string_view method, std::string_view path) {
  if (method == "HEAD") method = "GET";
  for (const Route& route : kRoutes) {
    if (route.method == method && route.path == path) return &route;
  }
  for (const Route& route : kPrefixed) {
    if (route.method == method && path.starts_with(route.path)) return &route;
  }
  return nullptr;
}

ErrorForm FormOf(const Route* route) { return route == nullptr ? ErrorForm::kOpenAi : route->form; }

// Looks at every byte whatever it finds, so that the time does not tell how much of a key fits.
bool EqualInConstantTime(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(
        difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other)));
  }
  return difference == 0;
}

}  // namespace

void ReplyJson(const RouteContext& context, const Json& json) {
  HttpResponse response;
  response.body = json.Text();
  context.exchange->Reply(std::move(response));
}

Api::Api(const ServeSettings& settings) : settings_(settings) {}

bool Api::KeyMatches(const std::vector<std::string>& keys, const HttpRequest& request) {
  std::string_view given = request.Header("Authorization");
  // The scheme's name has no case (RFC 9110).
  constexpr std::string_view kBearer = "Bearer ";
  if (EqualNoCase(given.substr(0, kBearer.size()), kBearer)) given.remove_prefix(kBearer.size());
  if (given.empty()) given = request.Header("X-Api-Key");
  bool matches = false;
  for (const std::string& key : keys) {
    const bool equal = EqualInConstantTime(given, key);
    matches = matches || equal;
  }
  return matches && !given.empty();
}

std::vector<HttpHeader> Api::CorsHeaders(const HttpRequest& request) const {
  // A star is not allowed beside credentials: the origin itself is.
  const bool echoes_any = settings_.cors_origins == "*" && settings_.cors_credentials;
  const bool echoes_local = settings_.cors_origins == "localhost";
  if (!echoes_any && !echoes_local) {
    return {{"Access-Control-Allow-Origin", settings_.cors_origins}};
  }
  // Also on an answer that names no origin: a cache must not give it to another one.
  std::vector<HttpHeader> headers{{"Vary", "Origin"}};
  const std::string origin(request.Header("Origin"));
  if (echoes_any ? !origin.empty() : IsLocalOrigin(origin)) {
    headers.push_back({"Access-Control-Allow-Origin", origin});
  }
  return headers;
}

HttpResponse Api::WithCors(HttpResponse response, const HttpRequest& request) const {
  for (HttpHeader& header : CorsHeaders(request)) response.headers.push_back(std::move(header));
  return response;
}

// The path behind --api-prefix; nothing outside of it.
std::optional<std::string> Api::RoutePath(const HttpRequest& request) const {
  const std::string& prefix = settings_.api_prefix;
  if (!request.path.starts_with(prefix)) return std::nullopt;
  return request.path.substr(prefix.size());
}

bool Api::Reserved(const HttpRequest& request) const {
  const auto path = RoutePath(request);
  const Route* route = path ? FindRoute(request.method, *path) : nullptr;
  return route != nullptr && route->open;
}

std::optional<HttpResponse> Api::Admit(const HttpRequest& request) const {
  if (request.method == "OPTIONS") {
    HttpResponse response;
    response.content_type = "text/html";
    if (settings_.cors_credentials) {
      response.headers.push_back({"Access-Control-Allow-Credentials", "true"});
    }
    response.headers.push_back({"Access-Control-Allow-Methods", settings_.cors_methods});
    response.headers.push_back({"Access-Control-Allow-Headers", settings_.cors_headers});
    return WithCors(std::move(response), request);
  }
  const auto path = RoutePath(request);
  const Route* route = path ? FindRoute(request.method, *path) : nullptr;
  const auto refuse = [&](int status, const std::string& message) {
    return WithCors(ErrorResponse(MakeApiError(status, message), FormOf(route)), request);
  };
  const bool open = route != nullptr && route->open;
  if (path && route == nullptr) {
    if (auto page = PageAnswer(settings_, request, *path)) {
      return WithCors(std::move(*page), request);
    }
  }
  if (!open && !settings_.api_keys.empty() && !KeyMatches(settings_.api_keys, request)) {
    return refuse(401, "Invalid API Key");
  }
  if (route == nullptr) return refuse(404, "File Not Found");
  if (route->handle == nullptr) {
    return refuse(501, std::string(route->feature) + ": not in this version");
  }
  if (stopping_.load(std::memory_order_acquire)) return refuse(503, "the server is stopping");
  if (seat_.load(std::memory_order_acquire) == nullptr) return refuse(503, "Loading model");
  return std::nullopt;
}

void Api::Handle(const std::shared_ptr<HttpExchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  std::vector<HttpHeader> headers = CorsHeaders(request);
  const std::string path = RoutePath(request).value_or("");
  const Route* route = FindRoute(request.method, path);
  if (route->form == ErrorForm::kAnthropic) {  // the name its clients look for
    headers.push_back({"request-id", request.id});
  }
  exchange->SetHeaders(std::move(headers));
  if (!route->quiet) {
    LOG(INFO) << "[req " << request.id << "] " << request.method << ' ' << Printable(path);
  }
  try {
    const Seat* seat = seat_.load(std::memory_order_acquire);
    route->handle({settings_, *seat, exchange, *controls_, shut_down_, *metrics_});
  } catch (const std::exception& error) {
    const ApiError answer = ApiErrorFrom(error);
    exchange->AddToLog({{"error", Printable(answer.message, kLoggedErrorBytes)}});
    exchange->Reply(ErrorResponse(answer, route->form));
  }
}

void Api::Done(const HttpRequest& request, const HttpOutcome& outcome) const {
  const auto path = RoutePath(request);
  const Route* route = path ? FindRoute(request.method, *path) : nullptr;
  // Of what is asked all the time, of the page, and of preflights only failures of ours are news.
  const bool quiet =
      request.method == "OPTIONS" || (route == nullptr ? outcome.status < 400 : route->quiet);
  if (quiet && outcome.status != 500) return;
  std::vector<LogField> fields{{"method", Printable(request.method, kLoggedMethodBytes)},
                               {"route", route == nullptr ? std::string_view() : route->path},
                               {"path", Printable(request.path, kLoggedPathBytes)},
                               {"status", outcome.status},
                               {"complete", outcome.complete},
                               {"ms", outcome.ms},
                               {"first_byte_ms", outcome.first_byte_ms},
                               {"bytes", outcome.bytes}};
  fields.insert(fields.end(), outcome.facts.begin(), outcome.facts.end());
  LogEvent("request", request.id, fields);
}

HttpResponse Api::Refuse(int status, const std::string& message, const HttpRequest& request) const {
  ApiError error = MakeApiError(status, message);
  if (status == 503) error.retry_after_s = 1;
  const auto path = RoutePath(request);
  return WithCors(ErrorResponse(error, FormOf(path ? FindRoute(request.method, *path) : nullptr)),
                  request);
}

}  // namespace bloomery::serve

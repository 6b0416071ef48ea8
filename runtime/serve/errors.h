// Errors as clients see them: status, type and body of docs/serving.md. A client's text never holds
// what only the log may show (paths, plugin details): kinds that could carry such get a fixed one.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/serve/http.h"
#include "runtime/serve/json_value.h"

namespace bloomery::serve {

inline constexpr size_t kLoggedErrorBytes = 400;  // of an error's text in the log

struct ApiError {
  int status = 500;
  std::string type;
  std::string message;
  // With exceed_context_size_error.
  int n_prompt_tokens = -1;
  int n_ctx = -1;
  int retry_after_s = 0;  // > 0: sent as Retry-After
};

// The error for a status of our own, with the type that belongs to it.
ApiError MakeApiError(int status, std::string message);

// The error a caught exception becomes. Logs what the client does not get.
ApiError ApiErrorFrom(const std::exception& error);
// The same for a request that failed in the engine.
ApiError ApiErrorFrom(ErrorKind kind, const std::string& message);

// How a route's API writes errors.
enum class ErrorForm {
  kOpenAi,     // {"error": {"code", "message", "type"}}
  kAnthropic,  // {"type": "error", "error": {…}}, with Anthropic's types
};

Json ErrorJson(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);
HttpResponse ErrorResponse(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);

}  // namespace bloomery::serve

#include "runtime/serve/errors.h"

#include "runtime/base/log.h"
#include "runtime/engine/engine.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 400:
    case 408:
    case 413:
    case 415:
    case 431:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return "server_error";
  }
}

// What Anthropic's API calls the same kinds.
std::string AnthropicType(const ApiError& error) {
  if (error.status == 413) return "request_too_large";
  if (error.status == 400) return "invalid_request_error";
  if (error.status == 500) return "api_error";
  if (error.status == 503) return "overloaded_error";
  return error.type;
}

// Clients of that API know a prompt that is too long by these words, and shorten the conversation.
std::string AnthropicMessage(const ApiError& error) {
  if (error.n_ctx < 0) return error.message;
  return "prompt is too long: " + std::to_string(error.n_prompt_tokens) + " tokens > " +
         std::to_string(error.n_ctx - 1) + " maximum";
}

}  // namespace

ApiError MakeApiError(int status, std::string message) {
  ApiError error;
  error.status = status;
  error.type = TypeOf(status);
  error.message = std::move(message);
  return error;
}

ApiError ApiErrorFrom(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::kBadRequest:
    case ErrorKind::kNoMemory:  // a limit that the request ran into
      return MakeApiError(400, message);
    case ErrorKind::kContextFull: {
      ApiError error = MakeApiError(400, message);
      error.type = "exceed_context_size_error";
      return error;
    }
    case ErrorKind::kUnsupported:
      return MakeApiError(501, message);
    case ErrorKind::kUnavailable:
    case ErrorKind::kCancelled:
      return MakeApiError(503, message);
    default:
      break;
  }
  LOG(ERROR) << "request failed (" << ErrorKindName(kind) << "): " << message;
  // What a card, a link or the host's threads did not do says nothing of files or other requests.
  if (kind == ErrorKind::kDevice) return MakeApiError(500, message);
  return MakeApiError(500, "the server failed on this request; its log has the reason");
}

ApiError ApiErrorFrom(const std::exception& error) {
  if (const auto* context = dynamic_cast<const engine::ContextError*>(&error)) {
    ApiError result = ApiErrorFrom(context->kind(), context->what());
    result.n_prompt_tokens = context->n_prompt_tokens();
    result.n_ctx = context->n_ctx();
    return result;
  }
  if (const auto* full = dynamic_cast<const engine::QueueFullError*>(&error)) {
    ApiError result = ApiErrorFrom(full->kind(), full->what());
    result.retry_after_s = full->retry_after_s();
    return result;
  }
  if (dynamic_cast<const chat::CallError*>(&error) != nullptr) {
    LOG(WARNING) << error.what();
    return MakeApiError(500, error.what());
  }
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return ApiErrorFrom(known->kind(), known->what());
  }
  return ApiErrorFrom(ErrorKind::kInternal, error.what());
}

Json ErrorJson(const ApiError& error, ErrorForm form) {
  const bool anthropic = form == ErrorForm::kAnthropic;
  Json inner = Json::Object({{"code", error.status},
                             {"message", anthropic ? AnthropicMessage(error) : error.message},
                             {"type", anthropic ? AnthropicType(error) : error.type}});
  if (error.n_ctx >= 0) {
    inner.Set("n_prompt_tokens", error.n_prompt_tokens);
    inner.Set("n_ctx", error.n_ctx);
  }
  if (anthropic) return Json::Object({{"type", "error"}, {"error", std::move(inner)}});
  return Json::Object({{"error", std::move(inner)}});
}

HttpResponse ErrorResponse(const ApiError& error, ErrorForm form) {
  HttpResponse response;
  response.status = error.status;
  response.body = ErrorJson(error, form).Text();
  if (error.retry_after_s > 0) {
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_s)});
  }
  return response;
}

}  // namespace bloomery::serve

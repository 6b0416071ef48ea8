// Adapters, of which there are none, and the end of the program.
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/errors.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {

void HandleAdapters(const RouteContext& context) { ReplyJson(context, Json::Array()); }

// [{"id", "scale"}, …]; those that are not listed get scale 0. There are none to list.
void HandleSetAdapters(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  if (!body.IsArray()) {
    throw Error(ErrorKind::kBadRequest, "request body: expected an array of adapters");
  }
  for (const auto& item : body.GetArray()) {
    const auto id = Fields(item, "an adapter").Integer("id");
    if (!id) RefuseField("id", "is required");
    RefuseField("id", "no adapter " + std::to_string(*id) + " is loaded: there are none");
  }
  ReplyJson(context, Json::Object({{"success", true}}));
}

// For whoever sits at this machine. A page of another origin, which a browser here may show, does
// not.
void HandleShutdown(const RouteContext& context) {
  if (!context.shut_down) throw Error(ErrorKind::kUnsupported, "shutting down by request");
  const HttpRequest& request = context.exchange->request();
  const std::string_view origin = request.Header("Origin");
  if (!request.from_this_machine || (!origin.empty() && !IsLocalOrigin(origin))) {
    return context.exchange->Reply(
        ErrorResponse(MakeApiError(403, "/shutdown is for clients of this machine only")));
  }
  LOG(INFO) << "a client asked for the end";
  ReplyJson(context, Json::Object({{"status", "shutting down"}}));
  context.shut_down();
}

}  // namespace bloomery::serve

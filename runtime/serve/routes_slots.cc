// POST /slots/{id}?action=…: a slot's state to a file of the server's folder, back, or out.
#include <charconv>

#include "runtime/base/file_name.h"
#include "runtime/serve/errors.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {
namespace {

using Kind = engine::SlotAction::Kind;

[[noreturn]] void Refuse(const char* what) { throw Error(ErrorKind::kBadRequest, what); }

constexpr std::string_view kFolder = "/slots/";

// What is behind the route's own part, whatever --api-prefix comes before.
int32_t SlotIdOf(std::string_view path, std::string_view prefix) {
  const std::string_view text = path.substr(prefix.size() + kFolder.size());
  int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) Refuse("Invalid slot ID");
  return id;
}

Kind KindOf(const HttpRequest& request) {
  const std::string_view action = request.Query("action").value_or("");
  if (action == "save") return Kind::kSave;
  if (action == "restore") return Kind::kRestore;
  if (action == "erase") return Kind::kErase;
  Refuse("Invalid action");
}

std::string FileNameOf(const HttpRequest& request) {
  const rapidjson::Document body = ParseJson(request.body, "request body");
  const std::string name = Fields(body, "request body").String("filename").value_or(std::string());
  if (!IsPlainFileName(name)) Refuse("Invalid filename");
  return name;
}

// A file that cannot be had is the request's fault, one that cannot be written is the server's.
HttpResponse Failure(Kind kind, const Error& error) {
  if (error.kind() == ErrorKind::kUnavailable) return ErrorResponse(ApiErrorFrom(error));
  if (kind == Kind::kRestore) {
    return ErrorResponse(MakeApiError(400, std::string("Unable to restore slot: ") + error.what()));
  }
  return ErrorResponse(MakeApiError(500, std::string("Unable to save slot: ") + error.what()));
}

Json Answer(Kind kind, int32_t slot, const std::string& name,
            const engine::SlotAction::Result& result) {
  Json json = Json::Object({{"id_slot", slot}});
  switch (kind) {
    case Kind::kSave:
      json.Set("filename", name);
      json.Set("n_saved", result.tokens);
      json.Set("n_written", result.bytes);
      json.Set("timings", Json::Object({{"save_ms", result.ms}}));
      break;
    case Kind::kRestore:
      json.Set("filename", name);
      json.Set("n_restored", result.tokens);
      json.Set("n_read", result.bytes);
      json.Set("timings", Json::Object({{"restore_ms", result.ms}}));
      break;
    case Kind::kErase:
      json.Set("n_erased", result.tokens);
      break;
  }
  return json;
}

}  // namespace

// The order of the checks is llama-server's.
void HandleSlotAction(const RouteContext& context) {
  if (context.settings.slot_save_path.empty()) {
    throw Error(ErrorKind::kUnsupported,
                "saving and restoring slots is switched off; start with --slot-save-path DIR");
  }
  const HttpRequest& request = context.exchange->request();
  const int32_t slot = SlotIdOf(request.path, context.settings.api_prefix);
  const Kind kind = KindOf(request);
  const std::string name = kind == Kind::kErase ? "" : FileNameOf(request);
  const std::shared_ptr<HttpExchange> exchange = context.exchange;
  context.seat.engine->Submit(engine::SlotAction{
      .kind = kind,
      .slot = slot,
      .path = context.settings.slot_save_path + "/" + name,
      .done = [exchange, kind, slot, name](const engine::SlotAction::Result& result) {
        HttpResponse response;
        if (result.error) {
          response = Failure(kind, *result.error);
        } else {
          response.body = Answer(kind, slot, name, result).Text();
        }
        exchange->Post([exchange, response = std::move(response)] { exchange->Reply(response); });
      }});
}

}  // namespace bloomery::serve

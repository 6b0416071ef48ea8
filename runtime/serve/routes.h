// The routes, one family a file. A handler runs on its exchange's strand and either replies at once
// or starts a GenerationJob; what it throws becomes the error answer (api.cc).
#pragma once

#include <functional>
#include <memory>

#include "runtime/serve/http.h"
#include "runtime/serve/metrics.h"
#include "runtime/serve/reasoning_controls.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"

namespace bloomery::serve {

struct RouteContext {
  const ServeSettings& settings;
  const Seat& seat;
  std::shared_ptr<HttpExchange> exchange;
  ReasoningControls& controls;
  const std::function<void()>& shut_down;  // ends the program in order; null: not by request
  MetricsReadings& metrics;
};

// routes_info.cc
void HandleHealth(const RouteContext& context);
void HandleModels(const RouteContext& context);
void HandleProps(const RouteContext& context);
void HandleSetProps(const RouteContext& context);
void HandleSlots(const RouteContext& context);

// routes_machine.cc
void HandleMetrics(const RouteContext& context);
void HandleResidency(const RouteContext& context);
void HandleResetResidency(const RouteContext& context);

// routes_slots.cc
void HandleSlotAction(const RouteContext& context);

// routes_text.cc
void HandleTokenize(const RouteContext& context);
void HandleDetokenize(const RouteContext& context);
void HandleApplyTemplate(const RouteContext& context);
void HandleInputTokens(const RouteContext& context);

// routes_completion.cc
void HandleCompletion(const RouteContext& context);
void HandleInfill(const RouteContext& context);
void HandleOpenAiCompletion(const RouteContext& context);

// routes_chat.cc
void HandleOpenAiChat(const RouteContext& context);
void HandleChatControl(const RouteContext& context);

// routes_messages.cc
void HandleMessages(const RouteContext& context);
void HandleCountTokens(const RouteContext& context);

// routes_responses.cc
void HandleResponses(const RouteContext& context);
void HandleResponsesInputTokens(const RouteContext& context);

// routes_admin.cc
void HandleAdapters(const RouteContext& context);
void HandleSetAdapters(const RouteContext& context);
void HandleShutdown(const RouteContext& context);

// 200 with a JSON body.
void ReplyJson(const RouteContext& context, const Json& json);
// The id of the model: the first alias in sorted order, else its name.
std::string ModelId(const RouteContext& context);

}  // namespace bloomery::serve

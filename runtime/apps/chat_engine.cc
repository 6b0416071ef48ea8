// The chat's in-process side: the same prompt, engine and reasoning split as the HTTP route.
#include <mutex>

#include "runtime/apps/chat_session.h"
#include "runtime/base/json.h"
#include "runtime/serve/chat_prompt.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/serve/json_value.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::apps {
namespace {

class EngineBackend final : public ChatBackend {
 public:
  EngineBackend(const serve::Seat& seat, const serve::ServeSettings& settings)
      : seat_(seat), settings_(settings) {}

  std::string Ask(const std::vector<ChatMessage>& messages,
                  const std::function<void(const std::string&)>& print) override {
    rapidjson::Document body = ParseJson(ChatBody(messages, true), "conversation");
    serve::GenerationFields fields =
        serve::ReadGenerationFields(serve::Fields(body, "conversation"), settings_, seat_, "");
    serve::ChatPrompt prompt = serve::MakeChatPrompt(body, settings_, seat_);
    serve::TakePrompt(prompt, fields.request);
    fields.request.id = "chat";
    serve::LeaveRoomForThinking(serve::Fields(body, "conversation"), prompt.rendered,
                                *seat_.chat_template, *seat_.tokenizer, fields.form);
    fields.request.grammar = serve::CompileOutputForm(fields.form, seat_);
    chat::ChatOutput output(prompt.format, [] { return std::string(); });  // no tools, no calls
    auto generation = seat_.engine->Submit(std::move(fields.request));
    SetRunning(generation);
    std::string answer;
    const auto take = [&](const std::vector<chat::OutputDelta>& deltas) {
      for (const chat::OutputDelta& delta : deltas) {
        print(delta.text);
        if (delta.kind == chat::OutputDelta::Kind::kContent) answer += delta.text;
      }
    };
    while (auto event = generation->Pop()) {
      if (const auto* text = std::get_if<engine::Text>(&*event)) {
        take(output.Push(text->text));
      } else if (const auto* failed = std::get_if<engine::Failed>(&*event)) {
        SetRunning(nullptr);
        if (failed->kind != ErrorKind::kCancelled) throw Error(failed->kind, failed->message);
      }
    }
    SetRunning(nullptr);
    take(output.Finish(chat::AnswerEnding::kEnd));
    return answer;
  }

  void Cancel() override {
    std::lock_guard lock(mutex_);
    if (running_) running_->Cancel();
  }

 private:
  void SetRunning(std::shared_ptr<engine::Generation> generation) {
    std::lock_guard lock(mutex_);
    running_ = std::move(generation);
  }

  const serve::Seat& seat_;
  const serve::ServeSettings& settings_;
  std::mutex mutex_;
  std::shared_ptr<engine::Generation> running_;
};

}  // namespace

std::string ChatBody(const std::vector<ChatMessage>& messages, bool stream) {
  serve::Json list = serve::Json::Array();
  for (const ChatMessage& message : messages) {
    list.Append(serve::Json::Object({{"role", message.role}, {"content", message.content}}));
  }
  return serve::Json::Object({{"messages", std::move(list)}, {"stream", stream}}).Text();
}

std::unique_ptr<ChatBackend> MakeEngineBackend(const serve::Seat& seat,
                                               const serve::ServeSettings& settings) {
  return std::make_unique<EngineBackend>(seat, settings);
}

}  // namespace bloomery::apps

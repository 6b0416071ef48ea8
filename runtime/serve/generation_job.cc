#include "runtime/serve/generation_job.h"

#include "runtime/base/log.h"

namespace bloomery::serve {

GenerationJob::GenerationJob(std::shared_ptr<HttpExchange> exchange, AnswerOptions answer)
    : exchange_(std::move(exchange)), answer_(std::move(answer)) {}

void GenerationJob::Start(const std::shared_ptr<HttpExchange>& exchange, engine::Engine& engine,
                          std::vector<engine::GenerateRequest> requests, AnswerOptions answer,
                          const MakeDialect& make_dialect) {
  auto job = std::make_shared<GenerationJob>(exchange, std::move(answer));
  job->choices_ = static_cast<size_t>(requests.front().choices);
  job->id_ = requests.front().id;
  job->unfinished_ = requests.size() * job->choices_;
  // The wake holds the exchange, which is cheap to post through, and the job; the engine lets go of
  // it after the last event.
  const auto wake = [exchange, job] { exchange->Post([job] { job->Pump(); }); };
  try {
    for (engine::GenerateRequest& request : requests) {
      job->generations_.push_back(engine.Submit(std::move(request), wake));
    }
    std::vector<Running> running;
    for (const auto& generation : job->generations_) running.push_back(generation->request());
    job->dialect_ = make_dialect(running);
  } catch (...) {
    job->done_ = true;
    job->CancelAll();
    throw;
  }
  exchange->OnGone([job] {
    job->CancelAll();
    LOG(INFO) << "[req " << job->id_ << "] the client has gone";
  });
}

void GenerationJob::CancelAll() {
  for (const auto& generation : generations_) generation->Cancel();
}

void GenerationJob::Pump() {
  StreamEvents out;
  for (size_t prompt = 0; prompt < generations_.size(); ++prompt) {
    while (auto event = generations_[prompt]->TryPop()) {
      if (done_) continue;
      try {
        OnEvent(prompt, *event, out);
      } catch (const Error& error) {
        Fail(ApiErrorFrom(error), out);
      }
    }
  }
  if (!streaming_ || out.empty()) return;
  std::string bytes;
  for (const std::string& event : out) bytes += event;
  exchange_->Write(std::move(bytes));
  if (done_) exchange_->End();
}

void GenerationJob::OnEvent(size_t prompt, const engine::Event& event, StreamEvents& out) {
  const size_t first = prompt * choices_;
  if (std::holds_alternative<engine::Begin>(event)) {
    if (!answer_.stream || streaming_) return;
    streaming_ = true;
    HttpResponse head;
    head.content_type = kEventStreamType;
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->BeginStream(std::move(head), answer_.ping_s);
    dialect_->OnBegin(out);
  } else if (const auto* progress = std::get_if<engine::Progress>(&event)) {
    if (answer_.stream) dialect_->OnProgress(first, *progress, out);
  } else if (const auto* text = std::get_if<engine::Text>(&event)) {
    dialect_->OnText(first + static_cast<size_t>(text->choice), *text, out);
    if (dialect_->collected_bytes() > answer_.bytes_max) {
      Fail(MakeApiError(400, AnswerTooLarge(answer_.bytes_max)), out);
    }
  } else if (const auto* finish = std::get_if<engine::Finish>(&event)) {
    dialect_->OnFinish(first + static_cast<size_t>(finish->choice), *finish, out);
    if (--unfinished_ == 0) Complete(out);
  } else if (const auto* failed = std::get_if<engine::Failed>(&event)) {
    Fail(ApiErrorFrom(failed->kind, failed->message), out);
  }
}

void GenerationJob::Fail(const ApiError& error, StreamEvents& out) {
  done_ = true;
  CancelAll();
  if (streaming_) {
    dialect_->OnError(error, out);
  } else {
    exchange_->Reply(ErrorResponse(error, dialect_->error_form()));
  }
  LOG(INFO) << "[req " << id_ << "] " << error.status << " " << error.message;
}

void GenerationJob::Complete(StreamEvents& out) {
  if (streaming_) {
    dialect_->OnEnd(out);
  } else {
    HttpResponse response;
    try {
      response.body = dialect_->Body().Text();
    } catch (const Error& error) {
      return Fail(ApiErrorFrom(error), out);
    }
    exchange_->Reply(std::move(response));
  }
  done_ = true;
  LOG(INFO) << "[req " << id_ << "] 200";
}

}  // namespace bloomery::serve

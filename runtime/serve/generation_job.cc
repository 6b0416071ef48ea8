#include "runtime/serve/generation_job.h"

#include <algorithm>

#include "runtime/base/utf8.h"

namespace bloomery::serve {

GenerationJob::GenerationJob(std::shared_ptr<HttpExchange> exchange, AnswerOptions answer)
    : exchange_(std::move(exchange)), answer_(std::move(answer)) {}

void GenerationJob::Start(const std::shared_ptr<HttpExchange>& exchange, engine::Engine& engine,
                          std::vector<engine::GenerateRequest> requests, AnswerOptions answer,
                          const MakeDialect& make_dialect) {
  auto job = std::make_shared<GenerationJob>(exchange, std::move(answer));
  job->choices_ = static_cast<size_t>(requests.front().choices);
  job->unfinished_ = requests.size() * job->choices_;
  job->timings_.resize(job->unfinished_);
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
    job->TellLog("gone");
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
  Measure(event, first);
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

void GenerationJob::Measure(const engine::Event& event, size_t first) {
  if (const auto* begin = std::get_if<engine::Begin>(&event)) {
    if (slot_ >= 0) return;
    slot_ = begin->id_slot;
    queue_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
                    .count();
  } else if (const auto* text = std::get_if<engine::Text>(&event)) {
    timings_[first + static_cast<size_t>(text->choice)] = text->timings;
  } else if (const auto* finish = std::get_if<engine::Finish>(&event)) {
    timings_[first + static_cast<size_t>(finish->choice)] = finish->timings;
    stop_ = engine::StopTypeName(finish->stop_type);
  }
}

// The facts of the request's line. Choices share their prompt; times are those of the longest.
void GenerationJob::TellLog(std::string_view end, const std::string& error) {
  int64_t prompt_n = 0;
  int64_t cache_n = 0;
  int64_t predicted_n = 0;
  double prompt_ms = 0;
  double predicted_ms = 0;
  for (size_t i = 0; i < timings_.size(); ++i) {
    const engine::Timings& t = timings_[i];
    if (i % choices_ == 0) {
      prompt_n += t.prompt_n;
      cache_n += t.cache_n;
    }
    predicted_n += t.predicted_n;
    prompt_ms = std::max(prompt_ms, t.prompt_ms);
    predicted_ms = std::max(predicted_ms, t.predicted_ms);
  }
  std::vector<LogField> facts{{"stream", answer_.stream},
                              {"slot", slot_},
                              {"queue_ms", queue_ms_},
                              {"prompt_n", prompt_n},
                              {"cache_n", cache_n},
                              {"prompt_ms", prompt_ms},
                              {"predicted_n", predicted_n},
                              {"predicted_ms", predicted_ms},
                              {"end", end}};
  if (!error.empty()) facts.emplace_back("error", Printable(error, kLoggedErrorBytes));
  exchange_->AddToLog(std::move(facts));
}

void GenerationJob::Fail(const ApiError& error, StreamEvents& out) {
  done_ = true;
  CancelAll();
  TellLog("error", error.message);
  if (streaming_) {
    dialect_->OnError(error, out);
  } else {
    exchange_->Reply(ErrorResponse(error, dialect_->error_form()));
  }
}

void GenerationJob::Complete(StreamEvents& out) {
  if (streaming_) {
    TellLog(stop_);
    dialect_->OnEnd(out);
  } else {
    HttpResponse response;
    try {
      response.body = dialect_->Body().Text();
    } catch (const Error& error) {
      return Fail(ApiErrorFrom(error), out);
    }
    TellLog(stop_);
    exchange_->Reply(std::move(response));
  }
  done_ = true;
}

}  // namespace bloomery::serve

// One generating request on its way: submits to the engine, turns events into an answer through a
// dialect, cancels when the client goes. Lives until its answer is complete; runs on its exchange's
// strand only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/serve/http.h"

namespace bloomery::serve {

class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  using Running = std::shared_ptr<const engine::GenerateRequest>;
  // Makes the dialect once the engine has taken the requests; gets them as the engine runs them.
  using MakeDialect = std::function<std::unique_ptr<Dialect>(const std::vector<Running>&)>;

  // `requests`: one a prompt, all with the same number of choices. Throws what Engine::Submit
  // throws; then none of them runs.
  static void Start(const std::shared_ptr<HttpExchange>& exchange, engine::Engine& engine,
                    std::vector<engine::GenerateRequest> requests, AnswerOptions answer,
                    const MakeDialect& make_dialect);

  GenerationJob(std::shared_ptr<HttpExchange> exchange, AnswerOptions answer);

 private:
  void Pump();
  void OnEvent(size_t prompt, const engine::Event& event, StreamEvents& out);
  void Fail(const ApiError& error, StreamEvents& out);
  void CancelAll();
  void Complete(StreamEvents& out);
  void Measure(const engine::Event& event, size_t first);
  void TellLog(std::string_view end, const std::string& error = {});

  std::shared_ptr<HttpExchange> exchange_;
  AnswerOptions answer_;
  std::vector<std::shared_ptr<engine::Generation>> generations_;
  std::unique_ptr<Dialect> dialect_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double queue_ms_ = 0;  // till a slot took the first request
  int32_t slot_ = -1;
  std::string_view stop_;                 // of the last choice that finished
  std::vector<engine::Timings> timings_;  // of each choice, so far
  size_t choices_ = 1;                    // of one prompt
  size_t unfinished_ = 0;
  bool streaming_ = false;  // the head is out
  bool done_ = false;
};

}  // namespace bloomery::serve

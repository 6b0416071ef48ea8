#include "runtime/serve/openai_answer.h"

namespace bloomery::serve {

void UsageSum::Add(size_t index, const engine::Finish& finish) {
  completion_ += finish.tokens_predicted;
  if (index % choices_ == 0) {
    prompt_ += finish.tokens_evaluated;
    cached_ += finish.timings.cache_n;
  }
}

OpenAiDialect::OpenAiDialect(AnswerNames names, AnswerOptions answer, std::string object,
                             size_t choices_a_prompt)
    : names_(std::move(names)),
      answer_(std::move(answer)),
      object_(std::move(object)),
      usage_(choices_a_prompt) {}

void OpenAiDialect::Count(size_t index, const engine::Finish& finish) {
  usage_.Add(index, finish);
  if (index != 0) return;
  timings_ = finish.timings;
  native_.finish = finish;
}

void OpenAiDialect::KeepNative(size_t index, const engine::Text& text) {
  if (index != 0 || !verbose_ || answer_.stream) return;
  native_.content += text.text;
  native_.tokens.insert(native_.tokens.end(), text.tokens.begin(), text.tokens.end());
}

void OpenAiDialect::AddNative(size_t index, Json& json) const {
  if (index != 0 || !verbose_) return;
  json.Set("__verbose", NativeResultJson(names_, answer_, *verbose_, index, native_));
}

Json OpenAiDialect::Chunk(Json choices) const {
  return Json::Object({{"id", names_.id},
                       {"object", object_},
                       {"created", names_.created},
                       {"model", names_.model},
                       {"system_fingerprint", BuildName()},
                       {"choices", std::move(choices)}});
}

Json OpenAiDialect::Summary(Json choices) const {
  Json summary = Chunk(std::move(choices));
  summary.Set("usage", usage_.Usage());
  summary.Set("timings", TimingsJson(timings_));
  if (!answer_.stream) AddNative(0, summary);
  return summary;
}

void OpenAiDialect::OnEnd(StreamEvents& out) {
  if (answer_.include_usage) out.push_back(DataEvent(Summary(Json::Array())));
  out.emplace_back(kDone);
}

void OpenAiDialect::OnError(const ApiError& error, StreamEvents& out) {
  out.push_back(DataEvent(ErrorJson(error)));
}

}  // namespace bloomery::serve

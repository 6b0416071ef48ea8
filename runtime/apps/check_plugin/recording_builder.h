// A bl_builder in front of another one: writes every call down as a line of text, and can fail the
// n-th call and all after it, as the ABI says a builder does. The inner builder must outlive it.
// One thread.
#pragma once

#include <bloomery/graph.h>

#include <optional>
#include <string>

namespace bloomery::apps::check {

class RecordingBuilder {
 public:
  // `fail_at`: the call, counted from 0, from which on every call fails.
  explicit RecordingBuilder(const bl_builder& inner, std::optional<int> fail_at = {});
  RecordingBuilder(const RecordingBuilder&) = delete;
  RecordingBuilder& operator=(const RecordingBuilder&) = delete;

  const bl_builder& raw() const { return raw_; }
  const std::string& text() const { return text_; }
  int calls() const { return calls_; }

 private:
  bool Fails();
  void Write(const std::string& line) { text_ += line + "\n"; }

  const bl_builder& inner_;
  std::optional<int> fail_at_;
  bl_builder raw_;
  std::string text_;
  int calls_ = 0;
};

}  // namespace bloomery::apps::check

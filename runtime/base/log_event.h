// One line of the log about a thing that happened, with its facts by name: text lines show them as
// name=value, JSON lines have them as members. And the JSON form of the whole log, one object a
// line:
//
//   {"time":"2026-11-29T18:44:31.123456Z","level":"info","source":"server.cc:88","message":"…"}
//
// with "id" for text about a request, and "event" and its fields in the place of "message". Any
// thread; never in the pass loop.
//
//   LogEvent("request", id, {{"status", 200}, {"ms", 12.5}});
//   … [req 4f1c] request status=200 ms=12.5
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace bloomery {

enum class LogLevel;  // log.h

struct LogField {
  using Value = std::variant<bool, int64_t, double, std::string>;

  template <std::integral T>
  LogField(std::string_view field, T number) : name(field) {
    if constexpr (std::same_as<T, bool>) {
      value = number;
    } else {
      value = static_cast<int64_t>(number);
    }
  }
  LogField(std::string_view field, double number) : name(field), value(number) {}
  LogField(std::string_view field, std::string text) : name(field), value(std::move(text)) {}
  LogField(std::string_view field, std::string_view text) : name(field), value(std::string(text)) {}
  LogField(std::string_view field, const char* text) : name(field), value(std::string(text)) {}

  std::string_view name;  // of a literal: it is not copied
  Value value;
};

// InitLogging of log.h, in its place, with the JSON form. `program` must outlive the process.
void InitJsonLogging(const char* program, LogLevel level);

// `event` names what happened; `id` is the request's, or empty. Of level info.
void LogEvent(std::string_view event, std::string_view id, std::span<const LogField> fields);
inline void LogEvent(std::string_view event, std::string_view id,
                     const std::vector<LogField>& fields) {
  LogEvent(event, id, std::span<const LogField>(fields));
}

}  // namespace bloomery

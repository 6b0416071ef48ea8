#include "runtime/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/log_event.h"

namespace bloomery {
namespace {

constexpr std::string_view kRequestMark = "[req ";

// The event that this thread is logging just now: the way of its fields through glog, which calls
// its sinks on the thread that logs.
struct Event {
  std::string_view name;
  std::span<const LogField> fields;
};
thread_local const Event* event_of_line = nullptr;

std::string Number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", std::isfinite(value) ? value : 0.0);
  return text.data();
}

// As text lines show a value; with blanks or quotes it stands in quotes.
std::string Shown(const LogField::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* count = std::get_if<int64_t>(&value)) return std::to_string(*count);
  if (const auto* real = std::get_if<double>(&value)) return Number(*real);
  const std::string& text = std::get<std::string>(value);
  if (!text.empty() && text.find_first_of(" \"\t\n=") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted += '"';
}

class JsonLine {
 public:
  JsonLine() { document_.SetObject(); }

  void Add(std::string_view name, std::string_view text) {
    Put(name, rapidjson::Value(std::string(text), document_.GetAllocator()));
  }
  void Add(std::string_view name, int64_t number) { Put(name, rapidjson::Value(number)); }
  void Add(const LogField& field) {
    if (const auto* flag = std::get_if<bool>(&field.value)) {
      Put(field.name, rapidjson::Value(*flag));
    } else if (const auto* count = std::get_if<int64_t>(&field.value)) {
      Add(field.name, *count);
    } else if (const auto* real = std::get_if<double>(&field.value)) {
      Put(field.name, rapidjson::Value(std::round(*real * 1000) / 1000));
    } else {
      Add(field.name, std::string_view(std::get<std::string>(field.value)));
    }
  }
  std::string Text() const { return WriteJson(document_) + "\n"; }

 private:
  void Put(std::string_view name, rapidjson::Value value) {
    document_.AddMember(rapidjson::Value(std::string(name), document_.GetAllocator()), value,
                        document_.GetAllocator());
  }

  rapidjson::Document document_;
};

// "2026-11-29T18:44:31.123456Z"
std::string TimeText(std::time_t seconds, int microseconds) {
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + length, text.size() - length, ".%06dZ", microseconds);
  return text.data();
}

class JsonSink final : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char* /*full_filename*/, const char* base_filename,
            int line, const google::LogMessageTime& time, const char* message,
            size_t message_len) override {
    static constexpr std::array<std::string_view, 4> kLevels{"info", "warning", "error", "fatal"};
    JsonLine json;
    json.Add("time", TimeText(time.timestamp(), time.usec()));
    json.Add("level", kLevels[static_cast<size_t>(std::clamp(severity, 0, 3))]);
    json.Add("source", std::string(base_filename) + ":" + std::to_string(line));
    std::string_view text(message, message_len);
    if (text.starts_with(kRequestMark)) {
      const size_t end = text.find("] ");
      if (end != std::string_view::npos) {
        json.Add("id", text.substr(kRequestMark.size(), end - kRequestMark.size()));
        text.remove_prefix(end + 2);
      }
    }
    if (event_of_line != nullptr) {
      json.Add("event", event_of_line->name);
      for (const LogField& field : event_of_line->fields) json.Add(field);
    } else {
      json.Add("message", text);
    }
    const std::string out = json.Text();
    // In one piece, as far as the other end takes it: lines of several threads do not mix.
    for (size_t at = 0; at < out.size();) {
      const ssize_t written = ::write(STDERR_FILENO, out.data() + at, out.size() - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
  }
  using google::LogSink::send;
};

}  // namespace

void InitLogging(const char* program, LogLevel level) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = static_cast<int>(level);
  google::InitGoogleLogging(program);
}

void InitJsonLogging(const char* program, LogLevel level) {
  FLAGS_logtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;  // the sink writes there
  FLAGS_minloglevel = static_cast<int>(level);
  google::InitGoogleLogging(program);
  for (google::LogSeverity severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");  // no files
  }
  static JsonSink sink;
  google::AddLogSink(&sink);
}

LogLevel ParseLogLevel(std::string_view name) {
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  throw Error(ErrorKind::kUsage,
              "log level '" + std::string(name) + "' is not one of info, warning, error");
}

void LogEvent(std::string_view event, std::string_view id, std::span<const LogField> fields) {
  if (FLAGS_minloglevel > google::GLOG_INFO) return;
  std::string text;
  if (!id.empty()) text.append(kRequestMark).append(id).append("] ");
  text.append(event);
  for (const LogField& field : fields) {
    text.append(" ").append(field.name).append("=").append(Shown(field.value));
  }
  const Event current{event, fields};
  event_of_line = &current;
  LOG(INFO) << text;
  event_of_line = nullptr;
}

}  // namespace bloomery

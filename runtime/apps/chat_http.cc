// The chat's other side: a client of a server's /v1/chat/completions.
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "runtime/apps/chat_session.h"
#include "runtime/apps/http_address.h"
#include "runtime/apps/program.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/stream.h"
#include "runtime/serve/fields.h"

namespace bloomery::apps {
namespace {

// Cancel's way into an Ask on another thread. Ask waits for its connection and for this together,
// so nobody but Ask ever touches the connection.
class Interrupt {
 public:
  Interrupt() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) throw Error(ErrorKind::kNoMemory, "the system gives no event descriptor");
  }
  ~Interrupt() { ::close(fd_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int fd() const { return fd_; }
  void Raise() const {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof(one));
  }
  void Clear() const {
    uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(fd_, &count, sizeof(count));
  }

 private:
  int fd_;
};

// A connection and its lines. What Cancel ends throws hub::Interrupted.
class Connection {
 public:
  Connection(const hub::Url& url, const hub::StreamOptions& options)
      : silence_max_(options.silence_max), stream_(url, options) {}

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      boost::system::error_code error;
      const size_t sent =
          stream_.write_some(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
      if (error) Fail(error);
      bytes.remove_prefix(sent);
    }
  }

  // The next line without its end; nothing at the end of the connection.
  std::optional<std::string> Line() {
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (line.ends_with("\r")) line.pop_back();
        return line;
      }
      if (!Fill()) return std::nullopt;
    }
  }

  std::string Rest() {
    while (Fill()) {
    }
    return std::move(buffer_);
  }

 private:
  bool Fill() {
    if (buffer_.size() > limits::kAnswerLineBytesMax) {
      throw Error(ErrorKind::kNoInput, "the server's answer is not an event stream");
    }
    char bytes[4096];
    boost::system::error_code error;
    const size_t count = stream_.read_some(boost::asio::buffer(bytes), error);
    if (error == boost::asio::error::eof) return false;
    if (error) Fail(error);
    buffer_.append(bytes, count);
    return true;
  }

  [[noreturn]] void Fail(const boost::system::error_code& error) const {
    if (error != boost::asio::error::timed_out) {
      throw hub::NetworkError(ErrorKind::kDownload, "the server: " + stream_.failure());
    }
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(silence_max_);
    throw hub::NetworkError(ErrorKind::kDownload, "the server was silent for " +
                                                      std::to_string(seconds.count()) + " seconds");
  }

  std::chrono::milliseconds silence_max_;
  hub::Stream stream_;
  std::string buffer_;
};

class HttpBackend final : public ChatBackend {
 public:
  HttpBackend(hub::Url url, std::string key, const ChatHttpTimes& times)
      : url_(std::move(url)), key_(std::move(key)), times_(times) {
    const auto environment = Environment();
    const auto roots = environment.find("SSL_CERT_FILE");
    if (roots != environment.end()) roots_ = roots->second;
  }

  std::string Ask(const std::vector<ChatMessage>& messages,
                  const std::function<void(const std::string&)>& print) override {
    interrupt_.Clear();
    std::string answer;
    try {
      Connection connection = Connect();
      connection.Send(RequestOf(ChatBody(messages, true)));
      CheckHead(connection);
      // HTTP/1.0 was asked for, so the body has no chunks: lines of events up to the end.
      bool whole = false;
      while (auto line = connection.Line()) {
        constexpr std::string_view kData = "data: ";
        if (!line->starts_with(kData)) continue;
        const std::string data = line->substr(kData.size());
        if (data == "[DONE]") {
          whole = true;
          break;
        }
        whole = TakeEvent(data, answer, print) || whole;
      }
      if (!whole) {
        throw hub::NetworkError(ErrorKind::kDownload,
                                "the answer is cut: the server ended it without a finish_reason");
      }
    } catch (const hub::Interrupted&) {
      return answer;
    }
    return answer;
  }

  void Cancel() override { interrupt_.Raise(); }

 private:
  std::string RequestOf(const std::string& body) const {
    std::string request = "POST " + url_.target +
                          "/v1/chat/completions HTTP/1.0\r\nHost: " + url_.HostHeader() +
                          "\r\nContent-Type: application/json\r\n";
    if (!key_.empty()) request += "Authorization: Bearer " + key_ + "\r\n";
    return request + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  Connection Connect() const {
    hub::StreamOptions options;
    options.connect_time_max = times_.connect;
    options.silence_max = times_.silence;
    options.ca_file = roots_;
    options.interrupt_fd = interrupt_.fd();
    try {
      return {url_, options};
    } catch (const hub::NetworkError& error) {
      throw Error(error.kind(), error.what(), kStartServer);
    }
  }

  static void CheckHead(Connection& connection) {
    const auto status = connection.Line();
    if (!status) {
      throw hub::NetworkError(ErrorKind::kDownload, "the server closed the connection");
    }
    while (auto line = connection.Line()) {
      if (line->empty()) break;
    }
    if (status->find(" 200 ") != std::string::npos) return;
    throw Error(ErrorKind::kNoInput, "the server answered " + Printable(*status) + ": " +
                                         Printable(connection.Rest(), 500));
  }

  // True with the event that has the answer's finish_reason.
  static bool TakeEvent(const std::string& data, std::string& answer,
                        const std::function<void(const std::string&)>& print) {
    const rapidjson::Document event =
        ParseJson(data, "event of the server", {.kind = ErrorKind::kNoInput});
    const serve::Fields fields(event, "event of the server");
    if (fields.Find("error") != nullptr) {
      throw Error(ErrorKind::kNoInput, "the server failed: " + Printable(data, 500));
    }
    const rapidjson::Value* choices = fields.Array("choices");
    if (choices == nullptr || choices->Empty()) return false;
    const serve::Fields choice((*choices)[0], "choice");
    const bool ends = choice.Find("finish_reason") != nullptr;
    const rapidjson::Value* delta = choice.Object("delta");
    if (delta == nullptr) return ends;
    const serve::Fields parts(*delta, "delta");
    if (const auto reasoning = parts.String("reasoning_content")) print(*reasoning);
    if (const auto content = parts.String("content")) {
      print(*content);
      answer += *content;
    }
    return ends;
  }

  hub::Url url_;
  std::string key_;
  std::string roots_;  // the file of SSL_CERT_FILE, or empty
  ChatHttpTimes times_;
  Interrupt interrupt_;
};

}  // namespace

std::unique_ptr<ChatBackend> MakeHttpBackend(const std::string& url, const std::string& api_key,
                                             const ChatHttpTimes& times) {
  return std::make_unique<HttpBackend>(ParseServerUrl(url), api_key, times);
}

}  // namespace bloomery::apps

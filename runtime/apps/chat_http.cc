// The chat's other side: a client of a server's /v1/chat/completions, over plain HTTP.
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "runtime/apps/chat_session.h"
#include "runtime/apps/http_address.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/fields.h"

namespace bloomery::apps {
namespace {

// Cancel's way into an Ask on another thread. Ask waits for its socket and for this together, so
// nobody but Ask ever touches the socket.
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

// Ends an Ask after Cancel.
struct Cancelled {};

// A connected socket that closes itself. Each wait ends by the time given or by the interrupt,
// which throws Cancelled.
class Socket {
 public:
  Socket(const HttpAddress& address, const Interrupt& interrupt, const ChatHttpTimes& times)
      : interrupt_(interrupt), times_(times) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
    if (failed != 0) {
      throw Error(ErrorKind::kNoInput,
                  "cannot resolve " + Printable(address.host) + ": " + ::gai_strerror(failed));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (Connect(*at)) return;
    }
    throw Error(ErrorKind::kNoInput,
                "cannot connect to " + Printable(address.host) + ":" + Printable(address.port));
  }
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!Wait(POLLOUT, times_.silence)) Silent();
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (sent <= 0) throw Error(ErrorKind::kNoInput, "the server closed the connection");
      bytes.remove_prefix(static_cast<size_t>(sent));
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
  bool Connect(const addrinfo& at) {
    fd_ = ::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol);
    if (fd_ < 0) return false;
    try {
      int error = ::connect(fd_, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS && Wait(POLLOUT, times_.connect)) {
        socklen_t size = sizeof(error);
        ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) return true;
    } catch (const Cancelled&) {
      Close();  // a constructor that throws runs no destructor
      throw;
    }
    Close();
    return false;
  }

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  // Whether the socket is ready before `time` has passed.
  bool Wait(short events, std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd polled[] = {{fd_, events, 0}, {interrupt_.fd(), POLLIN, 0}};
      const int ready = ::poll(polled, 2, static_cast<int>(std::max<int64_t>(0, left.count())));
      if (ready < 0 && errno == EINTR) continue;
      if (ready > 0 && polled[1].revents != 0) throw Cancelled();
      return ready > 0;
    }
  }

  [[noreturn]] void Silent() const {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(times_.silence);
    throw Error(ErrorKind::kNoInput,
                "the server was silent for " + std::to_string(seconds.count()) + " seconds");
  }

  bool Fill() {
    if (buffer_.size() > limits::kAnswerLineBytesMax) {
      throw Error(ErrorKind::kNoInput, "the server's answer is not an event stream");
    }
    char bytes[4096];
    while (true) {
      if (!Wait(POLLIN, times_.silence)) Silent();
      const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) return false;
      buffer_.append(bytes, static_cast<size_t>(count));
      return true;
    }
  }

  const Interrupt& interrupt_;
  const ChatHttpTimes& times_;
  int fd_ = -1;
  std::string buffer_;
};

class HttpBackend final : public ChatBackend {
 public:
  HttpBackend(HttpAddress address, std::string key, const ChatHttpTimes& times)
      : address_(std::move(address)), key_(std::move(key)), times_(times) {}

  std::string Ask(const std::vector<ChatMessage>& messages,
                  const std::function<void(const std::string&)>& print) override {
    interrupt_.Clear();
    std::string answer;
    try {
      Socket socket(address_, interrupt_, times_);
      socket.Send(RequestOf(ChatBody(messages, true)));
      CheckHead(socket);
      // HTTP/1.0 was asked for, so the body has no chunks: lines of events up to the end.
      while (auto line = socket.Line()) {
        constexpr std::string_view kData = "data: ";
        if (!line->starts_with(kData)) continue;
        const std::string data = line->substr(kData.size());
        if (data == "[DONE]") break;
        TakeEvent(data, answer, print);
      }
    } catch (const Cancelled&) {
      return answer;
    }
    return answer;
  }

  void Cancel() override { interrupt_.Raise(); }

 private:
  std::string RequestOf(const std::string& body) const {
    std::string request = "POST " + address_.path +
                          "/v1/chat/completions HTTP/1.0\r\nHost: " + address_.host +
                          "\r\nContent-Type: application/json\r\n";
    if (!key_.empty()) request += "Authorization: Bearer " + key_ + "\r\n";
    return request + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  void CheckHead(Socket& socket) const {
    const auto status = socket.Line();
    if (!status) throw Error(ErrorKind::kNoInput, "the server closed the connection");
    while (auto line = socket.Line()) {
      if (line->empty()) break;
    }
    if (status->find(" 200 ") != std::string::npos) return;
    throw Error(ErrorKind::kNoInput,
                "the server answered " + Printable(*status) + ": " + Printable(socket.Rest(), 500));
  }

  static void TakeEvent(const std::string& data, std::string& answer,
                        const std::function<void(const std::string&)>& print) {
    const rapidjson::Document event =
        ParseJson(data, "event of the server", {.kind = ErrorKind::kNoInput});
    const serve::Fields fields(event, "event of the server");
    if (fields.Find("error") != nullptr) {
      throw Error(ErrorKind::kNoInput, "the server failed: " + Printable(data, 500));
    }
    const rapidjson::Value* choices = fields.Array("choices");
    if (choices == nullptr || choices->Empty()) return;
    const rapidjson::Value* delta = serve::Fields((*choices)[0], "choice").Object("delta");
    if (delta == nullptr) return;
    const serve::Fields parts(*delta, "delta");
    if (const auto reasoning = parts.String("reasoning_content")) print(*reasoning);
    if (const auto content = parts.String("content")) {
      print(*content);
      answer += *content;
    }
  }

  HttpAddress address_;
  std::string key_;
  ChatHttpTimes times_;
  Interrupt interrupt_;
};

}  // namespace

std::unique_ptr<ChatBackend> MakeHttpBackend(const std::string& url, const std::string& api_key,
                                             const ChatHttpTimes& times) {
  return std::make_unique<HttpBackend>(ParseUrl(url), api_key, times);
}

}  // namespace bloomery::apps

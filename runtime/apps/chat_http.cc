// The chat's other side: a client of a server's /v1/chat/completions, over plain HTTP.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <optional>

#include "runtime/apps/chat_session.h"
#include "runtime/apps/http_address.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/fields.h"

namespace bloomery::apps {
namespace {

// An answer's head and one event of it; a server that sends more is not ours.
constexpr size_t kLineBytesMax = size_t{1} << 20;

// A connected socket that closes itself; Stop from another thread ends its reads.
class Socket {
 public:
  explicit Socket(const HttpAddress& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
    if (failed != 0) {
      throw Error(ErrorKind::kNoInput,
                  "cannot resolve " + Printable(address.host) + ": " + ::gai_strerror(failed));
    }
    for (addrinfo* at = found; at != nullptr && fd_ < 0; at = at->ai_next) {
      fd_ = ::socket(at->ai_family, at->ai_socktype, at->ai_protocol);
      if (fd_ >= 0 && ::connect(fd_, at->ai_addr, at->ai_addrlen) != 0) {
        ::close(fd_);
        fd_ = -1;
      }
    }
    ::freeaddrinfo(found);
    if (fd_ < 0) {
      throw Error(ErrorKind::kNoInput,
                  "cannot connect to " + Printable(address.host) + ":" + Printable(address.port));
    }
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }

  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
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
  bool Fill() {
    if (buffer_.size() > kLineBytesMax) {
      throw Error(ErrorKind::kNoInput, "the server's answer is not an event stream");
    }
    char bytes[4096];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int fd_ = -1;
  std::string buffer_;
};

class HttpBackend final : public ChatBackend {
 public:
  HttpBackend(HttpAddress address, std::string key)
      : address_(std::move(address)), key_(std::move(key)) {}

  std::string Ask(const std::vector<ChatMessage>& messages,
                  const std::function<void(const std::string&)>& print) override {
    Socket socket(address_);
    cancelled_.store(false);
    const FdScope scope(fd_, socket.fd());
    socket.Send(RequestOf(ChatBody(messages, true)));
    CheckHead(socket);
    std::string answer;
    // HTTP/1.0 was asked for, so the body has no chunks: lines of events up to the end.
    while (auto line = socket.Line()) {
      constexpr std::string_view kData = "data: ";
      if (!line->starts_with(kData)) continue;
      const std::string data = line->substr(kData.size());
      if (data == "[DONE]") break;
      TakeEvent(data, answer, print);
    }
    return answer;
  }

  void Cancel() override {
    cancelled_.store(true);
    const int fd = fd_.load();
    if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
  }

 private:
  // Lends the running socket to Cancel.
  class FdScope {
   public:
    FdScope(std::atomic<int>& slot, int fd) : slot_(slot) { slot_.store(fd); }
    ~FdScope() { slot_.store(-1); }
    FdScope(const FdScope&) = delete;
    FdScope& operator=(const FdScope&) = delete;

   private:
    std::atomic<int>& slot_;
  };

  std::string RequestOf(const std::string& body) const {
    std::string request = "POST " + address_.path +
                          "/v1/chat/completions HTTP/1.0\r\nHost: " + address_.host +
                          "\r\nContent-Type: application/json\r\n";
    if (!key_.empty()) request += "Authorization: Bearer " + key_ + "\r\n";
    return request + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  void CheckHead(Socket& socket) const {
    const auto status = socket.Line();
    if (!status) {
      if (cancelled_.load()) return;
      throw Error(ErrorKind::kNoInput, "the server closed the connection");
    }
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
  std::atomic<int> fd_{-1};
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<ChatBackend> MakeHttpBackend(const std::string& url, const std::string& api_key) {
  return std::make_unique<HttpBackend>(ParseUrl(url), api_key);
}

}  // namespace bloomery::apps

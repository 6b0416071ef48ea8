// Bytes from anywhere on a connection of the HTTP server, in two pieces where the first byte says
// so. The server answers with HTTP or closes, and goes on serving others.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/serve/http_server.h"

namespace {

using namespace bloomery::serve;

HttpOptions Options(const std::string& path) {
  HttpOptions options;
  options.hosts = {path};
  options.threads = 1;
  options.head_bytes_max = 2048;  // small, so that the limits are reached
  options.body_bytes_max = 8192;
  options.bodies_bytes_max = 16384;
  // Every client here closes its side, so these end nothing: who waits for them hangs, which ends
  // the run.
  options.head_time_max = std::chrono::seconds(60);
  options.body_time_max = std::chrono::seconds(60);
  return options;
}

HttpResponse Refusal(int status, const std::string& message, const HttpRequest&) {
  HttpResponse response;
  response.status = status;
  response.body = message;
  return response;
}

// A server for the whole run.
class Served {
 public:
  Served() {
    std::string folder = (std::filesystem::temp_directory_path() / "http_fuzz.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) std::abort();
    path_ = folder + "/http.sock";
    HttpCallbacks callbacks;
    callbacks.admit = [](const HttpRequest&) -> std::optional<HttpResponse> {
      return std::nullopt;
    };
    callbacks.refuse = Refusal;
    callbacks.handle = [](const std::shared_ptr<HttpExchange>& exchange) {
      const HttpRequest& request = exchange->request();
      if (request.Query("stream")) {
        exchange->BeginStream({}, 0);
        exchange->Write(request.body);
        return exchange->End();
      }
      HttpResponse response;
      response.body = request.path + std::to_string(request.body.size()) + request.body;
      exchange->Reply(response);
    };
    server_ = std::make_unique<HttpServer>(Options(path_), callbacks);
    server_->Start();
  }
  ~Served() {
    server_->Stop(std::chrono::milliseconds(0));
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path(), ignored);
  }

  // Everything the server says to the pieces.
  std::string Say(std::string_view first, std::string_view second) const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    for (const std::string_view piece : {first, second}) {
      if (!piece.empty()) (void)::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
    }
    ::shutdown(fd, SHUT_WR);
    std::string said;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      said.append(bytes, static_cast<size_t>(count));
    }
    ::close(fd);
    return said;
  }

 private:
  std::string path_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Served served;
  static uint64_t runs = 0;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = data[0] == 0 ? 0 : bytes.size() * data[0] / 256;
  const std::string said = served.Say(bytes.substr(0, cut), bytes.substr(cut));
  if (!said.empty() && !said.starts_with("HTTP/1.1 ")) std::abort();
  if (++runs % 64 == 0) {
    const std::string well = served.Say("GET /a%20b HTTP/1.1\r\nHost: h\r\n\r\n", "");
    if (!well.starts_with("HTTP/1.1 200") || !well.ends_with("/a b0")) {
      std::fprintf(stderr, "a good request got: %s\n", well.c_str());
      std::abort();
    }
  }
  return 0;
}

#include "tests/unit/serve/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <stdexcept>

namespace bloomery::test {
namespace {

// Far beyond what any test needs; reached only when something is stuck.
constexpr std::chrono::milliseconds kReadTimeMax{20000};

}  // namespace

Client::Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect");
  }
}

Client::~Client() { Close(); }

void Client::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::ShutdownSend() { ::shutdown(fd_, SHUT_WR); }

void Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the peer has closed: reading shows what it said
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool Client::Fill() {
  pollfd wait{fd_, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(kReadTimeMax.count())) <= 0) {
    throw std::runtime_error("nothing arrived in time");
  }
  char bytes[4096];
  const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(count));
  return true;
}

bool Client::ReadUntil(std::string_view bytes) {
  while (buffer_.find(bytes) == std::string::npos) {
    if (!Fill()) return false;
  }
  return true;
}

bool Client::ReadToEnd() {
  while (Fill()) {
  }
  return true;
}

Answer Client::Read(bool head_only) {
  Answer answer;
  if (!ReadUntil("\r\n\r\n")) return answer;
  const size_t end = buffer_.find("\r\n\r\n");
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at);
    const std::string line = head.substr(at, line_end - at);
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.headers[name] = line.substr(colon + 2);
    at = line_end + 2;
  }
  answer.chunked = answer.headers["transfer-encoding"] == "chunked";
  if (answer.status == 100) return Read(head_only);
  if (head_only) {
    answer.complete = true;
    return answer;
  }
  if (!answer.chunked) {
    const size_t length = std::stoul(answer.headers["content-length"]);
    while (buffer_.size() < length && Fill()) {
    }
    answer.complete = buffer_.size() >= length;
    answer.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return answer;
  }
  while (true) {
    if (!ReadUntil("\r\n")) return answer;
    const size_t size_end = buffer_.find("\r\n");
    const size_t size = std::stoul(buffer_.substr(0, size_end), nullptr, 16);
    while (buffer_.size() < size_end + 2 + size + 2) {
      if (!Fill()) return answer;
    }
    answer.body += buffer_.substr(size_end + 2, size);
    buffer_.erase(0, size_end + 2 + size + 2);
    if (size == 0) break;
  }
  answer.complete = true;
  return answer;
}

std::string RequestText(std::string_view method, std::string_view target, std::string_view body,
                        const std::map<std::string, std::string>& headers) {
  std::string text(method);
  text.append(" ").append(target).append(" HTTP/1.1\r\nHost: test\r\n");
  for (const auto& [name, value] : headers) text.append(name + ": " + value + "\r\n");
  if (!body.empty()) text.append("Content-Length: " + std::to_string(body.size()) + "\r\n");
  return text.append("\r\n").append(body);
}

Answer Fetch(int port, std::string_view method, std::string_view target, std::string_view body,
             const std::map<std::string, std::string>& headers) {
  Client client(port);
  client.Send(RequestText(method, target, body, headers));
  return client.Read(method == "HEAD");
}

}  // namespace bloomery::test

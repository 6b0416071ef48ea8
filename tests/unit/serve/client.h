// A client on a real socket, for tests: sends exact bytes, reads with a deadline, takes answers
// apart. Loopback only.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace bloomery::test {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool chunked = false;
  bool complete = false;  // the body's end was seen
};

class Client {
 public:
  explicit Client(int port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view bytes);
  // Reads until `bytes` occurs in what has arrived (true), or the peer closes or time is out.
  bool ReadUntil(std::string_view bytes);
  // One answer; status 0 when the peer closed before one began. `head_only` for HEAD.
  Answer Read(bool head_only = false);
  // True when the peer closes within the deadline; what came before is kept.
  bool ReadToEnd();
  void Close();
  void ShutdownSend();

  const std::string& received() const { return buffer_; }

 private:
  bool Fill();  // reads some; false at the end or when time is out

  int fd_ = -1;
  std::string buffer_;
};

// One request on a connection of its own.
Answer Fetch(int port, std::string_view method, std::string_view target, std::string_view body = "",
             const std::map<std::string, std::string>& headers = {});
std::string RequestText(std::string_view method, std::string_view target,
                        std::string_view body = "",
                        const std::map<std::string, std::string>& headers = {});

}  // namespace bloomery::test

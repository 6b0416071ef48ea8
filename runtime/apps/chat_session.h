// Where a terminal chat gets its answers from: an engine in this process, or a server elsewhere.
// One thread asks; Cancel may come from another.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"

namespace bloomery::apps {

struct ChatMessage {
  std::string role;
  std::string content;
};

class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  // Streams the answer to the conversation through `print` and returns it whole. Reasoning is
  // printed, but is no part of what is returned. After Cancel the answer so far. Throws Error.
  virtual std::string Ask(const std::vector<ChatMessage>& messages,
                          const std::function<void(const std::string&)>& print) = 0;
  // Ends the Ask that is running, if any. Any thread.
  virtual void Cancel() = 0;
};

// The seat must outlive it.
std::unique_ptr<ChatBackend> MakeEngineBackend(const serve::Seat& seat,
                                               const serve::ServeSettings& settings);
// How long a server may take to accept a connection, and to send the next bytes.
struct ChatHttpTimes {
  std::chrono::milliseconds connect = std::chrono::seconds(limits::kConnectSecondsMax);
  std::chrono::milliseconds silence = std::chrono::seconds(limits::kAnswerSecondsMax);
};
// `url`: "http://host:port" or "https://…", perhaps with a path in front of the routes.
// Error(kUsage) otherwise. TLS is checked against the machine's roots, or those of SSL_CERT_FILE.
std::unique_ptr<ChatBackend> MakeHttpBackend(const std::string& url, const std::string& api_key,
                                             const ChatHttpTimes& times = {});

// The conversation as an OpenAI chat body.
std::string ChatBody(const std::vector<ChatMessage>& messages, bool stream);

}  // namespace bloomery::apps

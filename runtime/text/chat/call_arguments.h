// Arguments of earlier tool calls on their way back into a prompt: as the model wrote them, so that
// a replayed turn renders to the tokens it was generated as and the prompt cache keeps matching.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::chat {

// The object that `text` holds, which templates print with its own spacing: as a whole, and the
// objects and arrays directly inside it. Undefined when `text` holds no object.
jinja::Value ArgumentsAsWritten(std::string_view text);

// What models wrote as the arguments of their latest calls, by the calls' ids: clients send them
// back in a form of their own. Any thread. Bounded; the calls not seen for longest are forgotten.
class CallMemory {
 public:
  explicit CallMemory(size_t bytes_max = limits::kCallMemoryBytesMax) : bytes_max_(bytes_max) {}

  void Remember(std::string_view id, std::string_view arguments);

  // In the messages of a chat body: arguments that mean what the model wrote become that text.
  void Restore(rapidjson::Document& body);

 private:
  struct Call {
    std::string id;
    std::string arguments;
    size_t bytes() const { return id.size() + arguments.size(); }
  };
  std::optional<std::string> Find(std::string_view id);

  std::mutex mutex_;
  const size_t bytes_max_;
  size_t bytes_ = 0;
  std::list<Call> calls_;                                                  // the latest first
  std::unordered_map<std::string_view, std::list<Call>::iterator> by_id_;  // views of calls_
};

}  // namespace bloomery::chat

// The running completions whose clients may end their reasoning (`reasoning_control`), by id. Any
// thread; an entry ends with its completion.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace bloomery::serve {

class ReasoningControls {
 public:
  // Keep what it returns until the completion is done. `stop` is set when the client says so.
  std::shared_ptr<const void> Add(const std::string& id, std::shared_ptr<std::atomic<bool>> stop);
  // False: no such completion runs, or it did not ask for control.
  bool End(const std::string& id);

 private:
  using Entry = std::shared_ptr<std::atomic<bool>>;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Entry>> running_;  // guarded by mutex_
};

}  // namespace bloomery::serve

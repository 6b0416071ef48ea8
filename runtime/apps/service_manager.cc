#include "runtime/apps/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

// A start that says something gets this long to say the next thing.
constexpr std::chrono::seconds kStepSeconds{120};
// Beyond the answers in progress: the prompt cache's last writes, and the memory given back.
constexpr std::chrono::seconds kStopSlack{30};

std::string ValueOf(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

std::optional<int64_t> NumberOf(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::chrono::microseconds> WatchdogOf(
    const std::map<std::string, std::string>& environment) {
  const auto time = NumberOf(ValueOf(environment, "WATCHDOG_USEC"));
  if (!time || *time <= 0) return std::nullopt;
  const std::string process = ValueOf(environment, "WATCHDOG_PID");
  if (!process.empty() && NumberOf(process) != int64_t{::getpid()}) return std::nullopt;
  return std::chrono::microseconds(*time);
}

std::string Microseconds(std::chrono::seconds time) {
  return std::to_string(std::chrono::microseconds(time).count());
}

// A status is one line.
std::string StatusLine(const std::string& text) { return "STATUS=" + Printable(text) + "\n"; }

}  // namespace

ServiceManager::ServiceManager(const std::map<std::string, std::string>& environment) {
  address_ = ValueOf(environment, "NOTIFY_SOCKET");
  if (address_.empty()) return;
  const bool known = address_.front() == '/' || address_.front() == '@';
  if (!known || address_.size() >= sizeof(sockaddr_un::sun_path)) {
    LOG(WARNING) << "NOTIFY_SOCKET " << Printable(address_)
                 << ": no path and no abstract name; nobody is notified";
    return;
  }
  if (address_.front() == '@') address_.front() = '\0';
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  watchdog_ = WatchdogOf(environment);
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) ::close(socket_);
}

void ServiceManager::Starting(const std::string& status) {
  Send(StatusLine(status) + "EXTEND_TIMEOUT_USEC=" + Microseconds(kStepSeconds) + "\n");
}

void ServiceManager::Ready(const std::string& status) { Send("READY=1\n" + StatusLine(status)); }

void ServiceManager::Stopping(std::chrono::seconds most) {
  Send("STOPPING=1\nSTATUS=answers in progress come to their end\nEXTEND_TIMEOUT_USEC=" +
       Microseconds(most + kStopSlack) + "\n");
}

void ServiceManager::Alive() { Send("WATCHDOG=1\n"); }

void ServiceManager::Send(const std::string& message) {
  if (socket_ < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const ssize_t sent =
      ::sendto(socket_, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size);  // NOLINT: as sockets want it
  if (sent >= 0 || std::exchange(failed_, true)) return;
  LOG(WARNING) << "NOTIFY_SOCKET: " << std::generic_category().message(errno);
}

std::chrono::milliseconds Watchdog::Period(std::chrono::milliseconds most) const {
  if (!manager_.watchdog()) return most;
  const auto third =
      std::chrono::duration_cast<std::chrono::milliseconds>(*manager_.watchdog() / 3);
  return std::clamp(third, std::chrono::milliseconds(1), most);
}

void Watchdog::Look(uint64_t beats) {
  if (!manager_.watchdog()) return;
  const bool goes_on = !seen_ || *seen_ != beats;
  seen_ = beats;
  if (goes_on) manager_.Alive();
}

}  // namespace bloomery::apps

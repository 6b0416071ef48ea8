// What a service manager is told about a server of its: ready, stopping, how a load goes on, and
// that it lives. systemd's protocol (one datagram a message to the socket that NOTIFY_SOCKET
// names), without its library; where nothing asks, every call does nothing. Never waits and never
// fails: a manager that cannot be reached is logged once. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace bloomery::apps {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of `environment`.
  explicit ServiceManager(const std::map<std::string, std::string>& environment);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  bool present() const { return socket_ >= 0; }

  // The start goes on: what it is at. Gives it more time, however long a model takes.
  void Starting(const std::string& status);
  void Ready(const std::string& status);
  // The end has begun, and may take `most`.
  void Stopping(std::chrono::seconds most);

  // In this time at least one Alive is wanted; nothing where no watchdog watches this process.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }
  void Alive();

 private:
  void Send(const std::string& message);

  int socket_ = -1;
  std::string address_;  // as in sockaddr_un: an abstract one begins with NUL
  std::optional<std::chrono::microseconds> watchdog_;
  bool failed_ = false;
};

// Says Alive as long as something goes on. Looked at from one thread, often.
class Watchdog {
 public:
  explicit Watchdog(ServiceManager& manager) : manager_(manager) {}

  // How often to look at most: the manager's time, three times over; `most` without a watchdog.
  std::chrono::milliseconds Period(std::chrono::milliseconds most) const;

  // `beats`: a number that grows while what is watched goes on (Engine::Beat).
  void Look(uint64_t beats);

 private:
  ServiceManager& manager_;
  std::optional<uint64_t> seen_;
};

}  // namespace bloomery::apps

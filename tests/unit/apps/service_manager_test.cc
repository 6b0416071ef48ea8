#include "runtime/apps/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>

namespace bloomery::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

// A manager's end of the socket.
class Listener {
 public:
  // Of a path, or "@name".
  explicit Listener(std::string name) : name_(std::move(name)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (name_.front() == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  }
  ~Listener() {
    ::close(socket_);
    if (name_.front() != '@') std::filesystem::remove(name_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // What was sent since; "" for nothing.
  std::string Next() const {
    std::array<char, 512> text{};
    const ssize_t size = ::recv(socket_, text.data(), text.size(), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
  }

 private:
  std::string name_;
  int socket_ = -1;
};

std::string AbstractName() { return "@bloomery-test-" + std::to_string(::getpid()); }

TEST(ServiceManager, EachStepIsOneMessageOfTheProtocol) {
  const Listener listener(AbstractName());
  ServiceManager manager(Environment{{"NOTIFY_SOCKET", AbstractName()}});
  EXPECT_TRUE(manager.present());
  manager.Starting("loading: 1 of\n2");
  EXPECT_THAT(listener.Next(), AllOf(HasSubstr("STATUS=loading: 1 of"),
                                     HasSubstr("\nEXTEND_TIMEOUT_USEC=120000000\n")));
  manager.Ready("serving");
  EXPECT_EQ(listener.Next(), "READY=1\nSTATUS=serving\n");
  manager.Alive();
  EXPECT_EQ(listener.Next(), "WATCHDOG=1\n");
  manager.Stopping(std::chrono::seconds(5));
  EXPECT_THAT(listener.Next(),
              AllOf(HasSubstr("STOPPING=1\n"), HasSubstr("EXTEND_TIMEOUT_USEC=35000000\n")));
}

TEST(ServiceManager, APathIsAnAddressToo) {
  const std::string path = testing::TempDir() + "notify-" + std::to_string(::getpid());
  const Listener listener(path);
  ServiceManager manager(Environment{{"NOTIFY_SOCKET", path}});
  manager.Ready("serving");
  EXPECT_THAT(listener.Next(), HasSubstr("READY=1"));
}

TEST(ServiceManager, WithoutAManagerOrWithAnAddressOfAnotherKindNothingHappens) {
  for (const char* address : {"", "vsock:2:1", "relative"}) {
    ServiceManager manager(Environment{{"NOTIFY_SOCKET", address}, {"WATCHDOG_USEC", "1000"}});
    EXPECT_FALSE(manager.present()) << address;
    EXPECT_FALSE(manager.watchdog()) << address;
    manager.Ready("serving");
  }
  ServiceManager gone(Environment{{"NOTIFY_SOCKET", "/no/such/socket"}});
  gone.Ready("serving");
  gone.Alive();
}

TEST(ServiceManager, TheWatchdogIsForTheNamedProcess) {
  const auto time = [](Environment more) {
    more["NOTIFY_SOCKET"] = "/no/such/socket";
    return ServiceManager(more).watchdog();
  };
  EXPECT_EQ(time({{"WATCHDOG_USEC", "3000000"}}), std::chrono::seconds(3));
  EXPECT_EQ(time({{"WATCHDOG_USEC", "3000000"}, {"WATCHDOG_PID", std::to_string(::getpid())}}),
            std::chrono::seconds(3));
  EXPECT_FALSE(time({{"WATCHDOG_USEC", "3000000"}, {"WATCHDOG_PID", "1"}}));
  EXPECT_FALSE(time({{"WATCHDOG_USEC", "soon"}}));
  EXPECT_FALSE(time({}));
}

TEST(Watchdog, SpeaksWhileTheBeatsGrowAndIsSilentWhileTheyDoNot) {
  const Listener listener(AbstractName());
  ServiceManager manager(
      Environment{{"NOTIFY_SOCKET", AbstractName()}, {"WATCHDOG_USEC", "600000"}});
  Watchdog watchdog(manager);
  EXPECT_EQ(watchdog.Period(std::chrono::seconds(1)), std::chrono::milliseconds(200));
  EXPECT_EQ(watchdog.Period(std::chrono::milliseconds(50)), std::chrono::milliseconds(50));
  for (const uint64_t beats : {4, 5, 9}) {
    watchdog.Look(beats);
    EXPECT_EQ(listener.Next(), "WATCHDOG=1\n") << beats;
  }
  for (int i = 0; i < 3; ++i) {
    watchdog.Look(9);
    EXPECT_EQ(listener.Next(), "");
  }
  watchdog.Look(10);
  EXPECT_EQ(listener.Next(), "WATCHDOG=1\n");
}

}  // namespace
}  // namespace bloomery::apps

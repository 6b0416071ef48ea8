// Adapters, of which there are none, and the end of the program by request.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;

class AdminTest : public ServedTest {
 protected:
  void StartWithShutdown() {
    Listen();
    server_->OnShutdown([this] { ++ends_; });
    FinishLoading();
  }
  std::atomic<int> ends_{0};
};

TEST_F(AdminTest, ThereAreNoAdaptersAndNoneMayBeSet) {
  Start();
  EXPECT_EQ(Get("/lora-adapters").body, "[]");
  EXPECT_EQ(Post("/lora-adapters", "[]").body, R"({"success":true})");
  EXPECT_THAT(
      ErrorOf(Post("/lora-adapters", R"([{"id":0,"scale":1}])"), 400, "invalid_request_error"),
      HasSubstr("no adapter 0"));
  EXPECT_THAT(ErrorOf(Post("/lora-adapters", "{}"), 400, "invalid_request_error"),
              HasSubstr("array"));
  EXPECT_THAT(ErrorOf(Post("/lora-adapters", "[1]"), 400, "invalid_request_error"),
              HasSubstr("object"));
}

TEST_F(AdminTest, ResidencyResetIsA501ByNameWhereNothingMoves) {
  seat_.reset_residency = [] {
    throw Error(ErrorKind::kUnsupported, "there is no residency to reset: all in one place");
  };
  Start();
  EXPECT_THAT(ErrorOf(Post("/residency/reset", "{}"), 501, "not_supported_error"),
              HasSubstr("no residency to reset: all in one place"));
}

TEST_F(AdminTest, ResidencyResetIsHandedOn) {
  int resets = 0;
  seat_.reset_residency = [&] { ++resets; };
  Start();
  EXPECT_EQ(Post("/residency/reset", "").body, R"({"success":true})");
  EXPECT_EQ(resets, 1);
}

TEST_F(AdminTest, ShutdownAnswersAndIsAskedForFromThisMachineOnly) {
  StartWithShutdown();
  EXPECT_EQ(Post("/shutdown", "").body, R"({"status":"shutting down"})");
  EXPECT_EQ(ends_, 1);
  // A page that a browser on this machine shows comes from here as well.
  for (const char* origin : {"https://example.org", "null", "http://localhost.example.org"}) {
    ErrorOf(Post("/shutdown", "", {{"Origin", origin}}), 403, "permission_error");
  }
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(Post("/shutdown", "", {{"Origin", "http://localhost:8080"}}).status, 200);
  EXPECT_EQ(ends_, 2);
}

TEST_F(AdminTest, ShutdownNeedsTheKey) {
  settings_.api_keys = {"secret"};
  StartWithShutdown();
  ErrorOf(Post("/shutdown", ""), 401, "authentication_error");
  EXPECT_EQ(ends_, 0);
  EXPECT_EQ(Post("/shutdown", "", {{"X-Api-Key", "secret"}}).status, 200);
}

TEST_F(AdminTest, ShutdownIsNotOfferedWhereNobodyTakesIt) {
  Start();
  ErrorOf(Post("/shutdown", ""), 501, "not_supported_error");
}

}  // namespace
}  // namespace bloomery::serve

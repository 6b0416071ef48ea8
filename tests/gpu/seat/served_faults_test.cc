// What goes wrong on a card with split banks, through a whole server: the request ends with an
// error that names it, and the next one is answered as before.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/seat/split_options.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

class CardServed : public ServedTest {
 protected:
  void Serve(exec::SeatOptions options) {
    options.split_hooks.host_task = [this](uint32_t) {
      if (stalls_.exchange(false)) std::this_thread::sleep_for(500ms);
    };
    options.split_hooks.copy_fails = [this] { return moves_fail_.load(); };
    options.split_hooks.stream_fails = [this] { return copies_fail_.load(); };
    loaded_ = ::bloomery::test::LoadThroughPlugin(::bloomery::test::MiniPath(), options);
    other_runner_ = loaded_.seat.get();
    Start();
  }
  ~CardServed() override {
    server_->Stop(0ms);
    engine_.reset();  // before its seat
  }

  std::string Text() {
    for (int i = 0; i < 20; ++i) {
      const test::Answer answer = Post("/completion", kBody);
      if (answer.status == 200) return TextOf(ParseJson(answer.body, "answer"), "content");
      EXPECT_EQ(answer.status, 500) << answer.body;
    }
    ADD_FAILURE() << "no request works any more";
    return "";
  }

  static constexpr const char* kBody =
      R"({"prompt":"The quick brown fox jumps over the lazy dog and looks for a place to sleep until the next morning comes","temperature":0,"n_predict":12,"ignore_eos":true,"cache_prompt":false})";

  std::atomic<bool> stalls_{false};
  std::atomic<bool> moves_fail_{false};
  std::atomic<bool> copies_fail_{false};
  ::bloomery::test::LoadedSeat loaded_;
};

TEST_F(CardServed, AWorkerThatStallsEndsTheRequestByNameAndTheNextOneIsAsBefore) {
  exec::SeatOptions options = ::bloomery::test::SplitOptions("CUDA0", 2);
  options.hand_off_deadline = 200ms;
  options.share_rates = ::bloomery::test::kAllHost;
  Serve(options);
  const std::string before = Text();
  EXPECT_FALSE(before.empty());
  stalls_ = true;
  EXPECT_THAT(ErrorOf(Post("/completion", kBody), 500, "server_error"),
              AllOf(HasSubstr("layer"), HasSubstr("within 200 ms")));
  EXPECT_EQ(Text(), before);
}

TEST_F(CardServed, ACopyThatFailsEndsTheRequestByNameAndTheNextOneIsAsBefore) {
  exec::SeatOptions options = ::bloomery::test::SplitOptions("CUDA0", 2);
  options.share_rates = ::bloomery::test::kAllLink;
  Serve(options);
  const std::string before = Text();
  copies_fail_ = true;
  EXPECT_THAT(ErrorOf(Post("/completion", kBody), 500, "server_error"),
              HasSubstr("have not come to the card"));
  copies_fail_ = false;
  EXPECT_EQ(Text(), before);
}

TEST_F(CardServed, AMoveWhoseCopyFailsStopsResidencyAndNoRequest) {
  exec::SeatOptions options = ::bloomery::test::SplitOptions("CUDA0", 2);
  options.residency.kind = memory::ResidencyKind::kLru;
  options.share_rates = ::bloomery::test::kAllHost;
  Serve(options);
  moves_fail_ = true;
  EXPECT_FALSE(Text().empty());
  EXPECT_FALSE(Text().empty());
  EXPECT_THAT(loaded_.seat->ReadResidencyStatus().stopped, HasSubstr("its copy was refused"));
}

}  // namespace
}  // namespace bloomery::serve

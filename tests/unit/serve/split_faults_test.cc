// What goes wrong in a pass of split banks, as a client sees it: the host's real part of such a
// pass (HostExperts and its pool) runs before every pass of a server, with a test in the card's
// place. The request ends with an error that names what happened, and the next one is answered.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/exec/split/host_experts.h"
#include "tests/unit/exec/toy_seat.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kRingsPicks = 2;  // kernels-common/moe/cuda/hand_off.h

class SplitFaultsTest : public ServedTest {
 protected:
  SplitFaultsTest() {
    toy_.AddBank(6, 3, 64, model::TensorType::kF32, model::TensorType::kF32,
                 model::TensorType::kF32);
    toy_.description.banks.back().layer = 7;
    exec::SeatOptions options;
    options.threads = 2;
    options.pin = false;
    options.hand_off_deadline = 60ms;
    options.split_hooks.host_task = [this](uint32_t) {
      if (stalls_.exchange(false)) std::this_thread::sleep_for(150ms);
    };
    host_ = std::make_unique<exec::HostExperts>(toy_.Model(), toy_.description, options,
                                                std::array{2U}, 4);
    memory_.resize(exec::HandOffPage::Bytes(toy_.description, 4) / sizeof(Line) + 1);
    auto* base = reinterpret_cast<std::byte*>(memory_.data());
    page_ = exec::HandOffPage(base, base, toy_.description, 4);
    host_->Bind(page_);
    before_pass_ = [this] { Pass(); };
    Start();
  }

  // One row whose picks are the host's; the card has done its part unless it hangs or is gone.
  void Pass() {
    host_->Begin();
    for (int32_t pick = 0; pick < 3; ++pick) page_.ids()[pick] = 3 + pick;
    if (!card_hangs_) {
      std::atomic_ref(*page_.ring(0)).store(kRingsPicks, std::memory_order_release);
    }
    const std::array<uint32_t, 1> banks = {0};
    host_->ServePass(banks, 1, [this]() -> bool {
      if (copy_failed_) throw Error(ErrorKind::kDevice, "running a pass: the card answers 'lost'");
      return true;
    });
  }

  std::string Fails(const std::string& body) {
    return ErrorOf(Post("/v1/completions", body), 500, "server_error");
  }
  // A thread may still be at what was given up.
  void NextOneWorks() {
    for (int i = 0; i < 20; ++i) {
      const test::Answer answer = Post("/v1/completions", kBody);
      if (answer.status == 200) {
        EXPECT_THAT(answer.body, HasSubstr("Tokyo"));
        return;
      }
    }
    ADD_FAILURE() << "no request works any more";
  }

  static constexpr const char* kBody = R"({"prompt":"x","temperature":0,"max_tokens":16})";

  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  ::bloomery::test::ToySeat toy_;
  std::atomic<bool> stalls_{false};
  std::atomic<bool> card_hangs_{false};
  std::atomic<bool> copy_failed_{false};
  std::vector<Line> memory_;
  exec::HandOffPage page_;
  std::unique_ptr<exec::HostExperts> host_;
};

TEST_F(SplitFaultsTest, AHostWorkerThatStallsEndsTheRequestByNameAndTheNextOneWorks) {
  NextOneWorks();
  stalls_ = true;
  EXPECT_THAT(Fails(kBody), AllOf(HasSubstr("the experts of layer 7"), HasSubstr("60 ms")));
  NextOneWorks();
  EXPECT_EQ(engine_->ReadMetrics().passes_failed, engine_->ReadMetrics().requests_failed);
}

TEST_F(SplitFaultsTest, ADeadlineThatPassesEndsAStreamWithAnErrorEvent) {
  card_hangs_ = true;
  const test::Answer answer =
      Post("/v1/completions", R"({"prompt":"x","temperature":0,"stream":true})");
  EXPECT_THAT(answer.body, AllOf(HasSubstr("error"), HasSubstr("layer 7 within 60 ms")));
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("[DONE]")));
  card_hangs_ = false;
  NextOneWorks();
}

TEST_F(SplitFaultsTest, ACardThatAnswersWithAnErrorIsNamed) {
  card_hangs_ = true;
  copy_failed_ = true;
  EXPECT_THAT(Fails(kBody), HasSubstr("the card answers 'lost'"));
  card_hangs_ = false;
  copy_failed_ = false;
  NextOneWorks();
}

}  // namespace
}  // namespace bloomery::serve

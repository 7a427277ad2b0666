#include "kernels/cuda/exchange/abort_gate.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

using std::chrono::milliseconds;

constexpr Duration kLong = std::chrono::seconds(60);

// Aborts that run until the test lets them end.
class AbortGateTest : public testing::Test {
 protected:
  std::future<void> BeginAbort(AbortGate& gate) {
    return std::async(std::launch::async, [this, &gate] {
      gate.Abort([this] {
        ++running_;
        may_end_.wait();
      });
    });
  }
  void AwaitRunning(int count) const {
    while (running_ != count) std::this_thread::sleep_for(milliseconds(1));
  }
  static bool HasEnded(const std::future<void>& abort) {
    return abort.wait_for(milliseconds(20)) == std::future_status::ready;
  }

  std::atomic<int> running_ = 0;
  std::promise<void> end_;
  std::shared_future<void> may_end_ = end_.get_future().share();
};

TEST_F(AbortGateTest, AnAbortWaitsForExchangesAndHoldsLaterOnes) {
  AbortGate gate({kLong, kLong});
  gate.OnPosted();
  gate.OnPosted();
  ASSERT_TRUE(gate.Start());
  auto abort = BeginAbort(gate);
  EXPECT_FALSE(HasEnded(abort));
  EXPECT_EQ(running_, 0) << "an exchange runs";
  EXPECT_TRUE(gate.Start()) << "the peer may wait for an exchange that was posted";
  gate.OnEnded(2, 2);
  AwaitRunning(1);
  gate.OnPosted();
  EXPECT_FALSE(gate.Start());
  end_.set_value();
  abort.get();
  EXPECT_TRUE(gate.Start());
}

// The first abort may wait for the kernels that the second one stops.
TEST_F(AbortGateTest, AbortsRunTogetherAlsoWhileExchangesAreHeld) {
  AbortGate gate({kLong, kLong});
  auto first = BeginAbort(gate);
  AwaitRunning(1);
  gate.OnPosted();
  auto second = BeginAbort(gate);
  AwaitRunning(2);
  end_.set_value();
  first.get();
  second.get();
}

TEST_F(AbortGateTest, NeitherSideWaitsForEver) {
  AbortGate gate({milliseconds(30), milliseconds(30)});
  gate.OnPosted();
  ASSERT_TRUE(gate.Start());
  auto abort = BeginAbort(gate);
  AwaitRunning(1);
  gate.OnPosted();
  EXPECT_FALSE(gate.Start());
  while (!gate.Start()) std::this_thread::sleep_for(milliseconds(1));
  end_.set_value();
  abort.get();
}

}  // namespace
}  // namespace baton::cuda

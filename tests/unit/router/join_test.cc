// Which workers may join under the id of a worker that has joined.
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "router/core/router_core.h"

namespace baton::router {
namespace {

constexpr Time kStart{std::chrono::hours(1)};

class JoinTest : public testing::Test {
 protected:
  StatusOr<WorkerSlot> Join(uint64_t boot, Time now) {
    WorkerInfo info;
    info.id = WorkerId("decode-0");
    info.boot = BootId(boot);
    info.can_decode = true;
    info.block_tokens = 16;
    info.blocks = 100;
    info.max_sequences = 8;
    info.context_length = 512;
    return core_.Join(std::move(info), now);
  }
  BootId BootAt(WorkerSlot slot) const { return core_.workers().record(slot).info.boot; }

  const CoreOptions options_{};
  RouterCore core_{options_};
};

// Two processes have the same worker id. If the second were accepted, the router would take it for
// the first and mix up their requests.
TEST_F(JoinTest, ATwinOfALiveWorkerIsRefused) {
  const StatusOr<WorkerSlot> first = Join(1, kStart);
  ASSERT_TRUE(first.ok()) << first.status();
  const Time almost = kStart + options_.suspect_after - std::chrono::milliseconds(1);
  const StatusOr<WorkerSlot> twin = Join(2, almost);
  ASSERT_EQ(twin.status().code(), StatusCode::kAlreadyExists);
  EXPECT_NE(Message(twin.status()).find("decode-0"), std::string_view::npos);
  EXPECT_EQ(core_.workers().slots(), std::vector<WorkerSlot>{*first});
  EXPECT_EQ(BootAt(*first), BootId(1));
}

TEST_F(JoinTest, AWorkerThatIsSilentLosesItsNameToItsNextLife) {
  ASSERT_TRUE(Join(1, kStart).ok());
  const StatusOr<WorkerSlot> next = Join(2, kStart + options_.suspect_after);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(core_.workers().slots(), std::vector<WorkerSlot>{*next});
  EXPECT_EQ(BootAt(*next), BootId(2));
}

TEST_F(JoinTest, ANewStreamOfTheSameLifeTakesThePlaceOfTheOld) {
  ASSERT_TRUE(Join(1, kStart).ok());
  const StatusOr<WorkerSlot> again = Join(1, kStart);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(core_.workers().slots(), std::vector<WorkerSlot>{*again});
}

}  // namespace
}  // namespace baton::router

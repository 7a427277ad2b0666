#include "common/group/rank_link.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

// The other end answers after `silent` seconds of waiting.
class SilentLink final : public RankLink {
 public:
  explicit SilentLink(Duration silent, Status then = OkStatus())
      : silent_(silent), then_(std::move(then)) {}

  Status Send(std::string_view, int) override { return OkStatus(); }
  StatusOr<Message> Receive(Duration limit) override {
    if (limit < silent_) {
      silent_ -= limit;
      return Status(StatusCode::kDeadlineExceeded, "");
    }
    if (!then_.ok()) return then_;
    return Message{"hello", {}};
  }

 private:
  Duration silent_;
  Status then_;
};

class ReceiveAndTellTest : public testing::Test {
 protected:
  StatusOr<RankLink::Message> Receive(SilentLink link, Duration limit) {
    told_.clear();
    return ReceiveAndTell(
        link, limit, [this](Duration waited) { told_.push_back(ToSeconds(waited)); });
  }
  std::vector<double> told_;
};

TEST_F(ReceiveAndTellTest, AWaitIsToldAfterTenSecondsAndThenEachThirty) {
  EXPECT_EQ(Receive(SilentLink(seconds(75)), seconds(100))->text, "hello");
  EXPECT_THAT(told_, ElementsAre(10, 40, 70));
  EXPECT_EQ(Receive(SilentLink(seconds(9)), seconds(100))->text, "hello");
  EXPECT_THAT(told_, ElementsAre());
}

TEST_F(ReceiveAndTellTest, AWaitEndsAtItsLimitAndAtTheEndOfTheOtherRank) {
  EXPECT_EQ(Receive(SilentLink(seconds(500)), seconds(60)).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_THAT(told_, ElementsAre(10, 40, 60));
  const Status gone(StatusCode::kUnavailable, "gone");
  EXPECT_EQ(Receive(SilentLink(seconds(15), gone), seconds(60)).status(), gone);
  EXPECT_THAT(told_, ElementsAre(10));
}

}  // namespace
}  // namespace baton

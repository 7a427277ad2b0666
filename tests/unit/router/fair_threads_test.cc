#include "router/frontend/fair_threads.h"

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router {
namespace {

using ::testing::ElementsAre;

constexpr size_t kLarge = FairThreads::kSmallBytes + 1;
constexpr auto kLimit = std::chrono::seconds(30);

// A job that starts and then waits for LetGo(), for longer than a test waits for other jobs.
class Blocker final {
 public:
  std::function<void()> Job() {
    return [this] {
      begun_.set_value();
      go_.get_future().wait_for(2 * kLimit);
    };
  }
  bool WaitBegun() { return begun_.get_future().wait_for(kLimit) == std::future_status::ready; }
  void LetGo() { go_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> go_;
};

class FairThreadsTest : public testing::Test {
 protected:
  // A job that appends `name` to notes_.
  std::function<void()> Note(const std::string& name) {
    return [this, name] {
      std::lock_guard lock(mutex_);
      notes_.push_back(name);
      if (notes_.size() == wanted_) done_.set_value();
    };
  }
  std::vector<std::string> WaitForNotes() {
    EXPECT_EQ(done_.get_future().wait_for(kLimit), std::future_status::ready);
    std::lock_guard lock(mutex_);
    return notes_;
  }

  std::mutex mutex_;
  std::vector<std::string> notes_;
  size_t wanted_ = 0;
  std::promise<void> done_;
};

TEST_F(FairThreadsTest, ClientsTakeTurns) {
  FairThreads threads("test", 1);
  Blocker blocker;
  threads.Post("first", 1, blocker.Job());
  ASSERT_TRUE(blocker.WaitBegun());
  wanted_ = 6;
  for (const char* name : {"a1", "a2", "a3", "a4"}) threads.Post("a", 1, Note(name));
  threads.Post("b", 1, Note("b1"));
  threads.Post("c", 1, Note("c1"));
  blocker.LetGo();
  EXPECT_THAT(WaitForNotes(), ElementsAre("a1", "b1", "c1", "a2", "a3", "a4"));
}

TEST_F(FairThreadsTest, LargeJobsNeverHoldAllThreads) {
  Blocker blocker;
  Blocker later;
  wanted_ = 2;
  FairThreads threads("test", 2);
  threads.Post("heavy", kLarge, blocker.Job());
  ASSERT_TRUE(blocker.WaitBegun());
  threads.Post("heavy", kLarge, later.Job());
  threads.Post("heavy", 1, Note("own"));
  threads.Post("light", 1, Note("light"));
  EXPECT_THAT(WaitForNotes(), ElementsAre("own", "light"));
  blocker.LetGo();
  EXPECT_TRUE(later.WaitBegun());
  later.LetGo();
}

TEST_F(FairThreadsTest, NeitherSizeStarvesTheOther) {
  FairThreads threads("test", 1);
  Blocker blocker;
  threads.Post("x", 1, blocker.Job());
  ASSERT_TRUE(blocker.WaitBegun());
  wanted_ = 4;
  for (const char* name : {"s1", "s2"}) threads.Post("x", 1, Note(name));
  for (const char* name : {"l1", "l2"}) threads.Post("x", kLarge, Note(name));
  blocker.LetGo();
  EXPECT_THAT(WaitForNotes(), ElementsAre("l1", "s1", "l2", "s2"));
}

}  // namespace
}  // namespace baton::router

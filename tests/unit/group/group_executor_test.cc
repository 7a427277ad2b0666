#include "common/group/group_executor.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/engine/executor.h"
#include "common/group/follower.h"
#include "common/group/step_message.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_executor.h"
#include "tests/fakes/rank_memory.h"

namespace baton {
namespace {

constexpr KvOptions kKv = {.blocks = 40, .block_tokens = 16, .dtype = DType::kF32};
constexpr Duration kLimit = std::chrono::seconds(20);
constexpr Duration kSoon = std::chrono::milliseconds(30);

// A follower on a thread of this process, with a model and an arena of its own.
class Follower {
 public:
  Follower(const StepRing& ring, int index, Duration leader_limit = kLimit)
      : ring_(StepRing::Open(UniqueFd(::dup(ring.fd()))).value()),
        thread_([this, index, leader_limit](const std::stop_token& stop) {
          result_ =
              RunFollower(model_, *ring_, {.follower = index, .leader_limit = leader_limit}, stop);
        }) {}

  FollowerArena arena() const {
    const KvArena& own = model_.kv_arenas().front();
    return {own.shard, std::make_unique<RankMemory>(*own.memory)};
  }
  FakeExecutor& model() { return model_; }
  // Stops the follower, unless it has ended by itself.
  Status Stop() {
    thread_.request_stop();
    return Join();
  }
  Status Join() {
    thread_.join();
    return result_;
  }
  const Buffer& memory() const { return *model_.kv_arenas().front().memory; }

 private:
  FakeExecutor model_{kKv};
  std::unique_ptr<StepRing> ring_;
  Status result_;
  std::jthread thread_;
};

// A leader with a fake model, two followers, and an engine that computes with all three.
class GroupTest : public testing::Test {
 protected:
  GroupTest() {
    std::vector<FollowerArena> arenas;
    for (int i = 0; i < 2; ++i) {
      followers_.push_back(std::make_unique<Follower>(*ring_, i));
      arenas.push_back(followers_.back()->arena());
    }
    group_ = std::make_unique<GroupExecutor>(
        model_, *ring_, std::move(arenas), GroupExecutor::Options{.limit = limit_});
    engine_ = Engine::Create({}, *group_, listener_, clock_).value();
  }

  void RunUntilIdle() {
    for (int i = 0; i < 1000 && engine_->Step(); ++i) clock_.Advance(std::chrono::milliseconds(1));
  }

  Duration limit_ = kLimit;
  ManualClock clock_;
  RecordingListener listener_;
  FakeExecutor model_{kKv};
  std::unique_ptr<StepRing> ring_ = StepRing::Create(2, 1 << 20).value();
  std::vector<std::unique_ptr<Follower>> followers_;
  std::unique_ptr<GroupExecutor> group_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(GroupTest, EveryRankComputesTheStepsOfTheLeader) {
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 6; ++id) {
    // Samples that share the last block of a prompt need copies of blocks.
    requests.push_back(MakeRequest(id, static_cast<int32_t>(20 + 7 * id), id, 25));
    requests.back().samples = 2;
    engine_->Submit(requests.back());
  }
  RunUntilIdle();
  for (const Request& request : requests) {
    for (int32_t sample = 0; sample < 2; ++sample) {
      EXPECT_EQ(listener_.log({request.id, request.epoch}).Tokens(sample),
                model_.Expected(request, sample));
    }
  }
  EXPECT_GT(model_.copies(), 0);
  const Buffer& memory = *model_.kv_arenas().front().memory;
  for (auto& follower : followers_) {
    const Status status = follower->Stop();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(follower->model().rows_run(), model_.rows_run());
    EXPECT_EQ(std::memcmp(follower->memory().data(), memory.data(), memory.size()), 0);
  }
  ASSERT_EQ(group_->kv_arenas().size(), 3U);
  EXPECT_EQ(group_->kv_arenas()[2].memory->data(), followers_[1]->memory().data());
}

TEST_F(GroupTest, SeveralStepsOfAPipelineAreUnderWay) {
  FakeExecutor model(kKv, {.stages = 3});
  GroupExecutor group(model, *ring_, {}, {.limit = limit_});
  EXPECT_EQ(group.stages(), 3);
  const auto engine = Engine::Create({}, group, listener_, clock_).value();
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 6; ++id) {
    requests.push_back(MakeRequest(id, static_cast<int32_t>(20 + 7 * id), id, 25));
    requests.back().samples = 2;
    engine->Submit(requests.back());
  }
  for (int i = 0; i < 1000 && engine->Step(); ++i) clock_.Advance(std::chrono::milliseconds(1));
  for (const Request& request : requests) {
    for (int32_t sample = 0; sample < 2; ++sample) {
      EXPECT_EQ(listener_.log({request.id, request.epoch}).Tokens(sample),
                model.Expected(request, sample));
    }
  }
  EXPECT_EQ(model.issued_as().rbegin()->first, 3U);
  EXPECT_EQ(model.faults(), 0);
  const Buffer& memory = *model.kv_arenas().front().memory;
  for (auto& follower : followers_) {
    EXPECT_TRUE(follower->Stop().ok());
    EXPECT_EQ(std::memcmp(follower->memory().data(), memory.data(), memory.size()), 0);
  }
}

TEST_F(GroupTest, ALateFollowerBreaksTheGroup) {
  followers_[1]->model().AllowRuns(0);
  GroupExecutor group(model_, *ring_, {}, {.limit = std::chrono::milliseconds(500)});
  const auto engine = Engine::Create({}, group, listener_, clock_).value();
  const Request request = MakeRequest(1, 20, 1, 5);
  engine->Submit(request);
  while (!listener_.log({request.id, request.epoch}).ended()) engine->Step();
  ASSERT_EQ(listener_.gave_up().size(), 1U);
  EXPECT_THAT(std::string(Message(listener_.gave_up().front())),
              testing::HasSubstr("rank 2 has not ended step 1"));
  followers_[1]->model().AllowRuns(INT64_MAX);
}

TEST(FollowerTest, EndsWithTheErrorOfAStep) {
  const auto ring = StepRing::Create(1, 1024).value();
  Follower follower(*ring, 0);
  follower.model().LoseDevice();
  const std::vector<int32_t> zero = {0};
  const std::vector<SequenceRows> rows = {{0, 1, 0, 0}};
  const StepInput step{zero, zero, rows, zero, {}};
  const auto memory = ring->Prepare(StepMessageBytes(step, {}), {}, kLimit);
  EncodeStep({.number = 1, .input = step, .copies = {}}, *memory);
  ring->Publish();
  EXPECT_EQ(follower.Join().code(), StatusCode::kUnavailable);
}

// An executor whose steps end when a test lets them.
class QueuingExecutor final : public Executor {
 public:
  const ModelTraits& traits() const override { return traits_; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return 1; }
  std::span<const KvArena> kv_arenas() const override { return {}; }
  std::string device_name() const override { return "fake"; }
  bool queues_steps() const override { return true; }
  std::vector<RankTimes> rank_times() const override { return {{.steps = awaited_}}; }
  bool StepEnded() const override { return awaited_ < may_end; }
  Status Issue(const StepInput& /*input*/,
               std::span<const SamplingRow> /*sampling*/,
               std::span<SampledToken> /*out*/,
               const LayerWatch& /*watch*/) override {
    ++issued;
    max_under_way = std::max(max_under_way.load(), issued - awaited_);
    return OkStatus();
  }
  Status Await() override {
    while (!StepEnded()) std::this_thread::yield();
    ++awaited_;
    return OkStatus();
  }
  Status CopyBlocks(std::span<const BlockCopy> /*copies*/) override { return OkStatus(); }

  std::atomic<int> may_end = 0;
  std::atomic<int> issued = 0;
  std::atomic<int> max_under_way = 0;

 private:
  ModelTraits traits_;
  KvLayout layout_;
  std::atomic<int> awaited_ = 0;
};

TEST(GroupExecutorTest, AStepHasEndedWhenEveryRankHasEndedIt) {
  const auto ring = StepRing::Create(1, 1024).value();
  const auto mine = StepRing::Open(UniqueFd(::dup(ring->fd()))).value();
  QueuingExecutor follower;
  Status result;
  std::jthread thread([&](const std::stop_token& stop) {
    result = RunFollower(follower, *mine, {.leader_limit = kLimit}, stop);
  });
  QueuingExecutor leader;
  GroupExecutor group(leader, *ring, {}, {.limit = kLimit});
  const std::vector<int32_t> zero = {0};
  const std::vector<SequenceRows> rows = {{0, 1, 0, 0}};
  ASSERT_TRUE(group.Issue({zero, zero, rows, zero, {}}, {}, {}, {}).ok());
  EXPECT_FALSE(group.StepEnded()) << "no rank has ended it";
  leader.may_end = 1;
  EXPECT_FALSE(group.StepEnded()) << "the follower has not ended it";
  follower.may_end = 1;
  ASSERT_TRUE(ring->WaitEnded(1, {}, kLimit).ok());
  EXPECT_TRUE(group.StepEnded());
  leader.may_end = 0;
  EXPECT_FALSE(group.StepEnded()) << "the leader has not ended it";
  leader.may_end = 1;
  EXPECT_TRUE(group.Await().ok());
  thread.request_stop();
  thread.join();
  EXPECT_TRUE(result.ok()) << result;
}

TEST(FollowerTest, IssuesAStepWhileTheOneBeforeRuns) {
  const auto ring = StepRing::Create(1, 1024).value();
  const auto mine = StepRing::Open(UniqueFd(::dup(ring->fd()))).value();
  QueuingExecutor executor;
  Status result;
  std::jthread thread([&](const std::stop_token& stop) {
    result = RunFollower(executor, *mine, {.leader_limit = kLimit}, stop);
  });
  const std::vector<int32_t> zero = {0};
  const std::vector<SequenceRows> rows = {{0, 1, 0, 0}};
  const StepInput step{zero, zero, rows, zero, {}};
  for (uint64_t number = 1; number <= 4; ++number) {
    const auto memory = ring->Prepare(StepMessageBytes(step, {}), {}, kLimit);
    EncodeStep({.number = number, .input = step, .copies = {}}, *memory);
    ring->Publish();
  }
  while (executor.issued < 2) std::this_thread::yield();
  EXPECT_EQ(ring->WaitEnded(1, {}, kSoon).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(executor.issued, 2);
  executor.may_end = 1;
  EXPECT_TRUE(ring->WaitEnded(1, {}, kLimit).ok());
  while (executor.issued < 3) std::this_thread::yield();
  EXPECT_EQ(ring->WaitEnded(2, {}, kSoon).code(), StatusCode::kDeadlineExceeded);
  executor.may_end = 4;
  EXPECT_TRUE(ring->WaitEnded(4, {}, kLimit).ok());
  EXPECT_EQ(executor.max_under_way, 2);
  EXPECT_EQ(ring->times(0).steps, 4);
  thread.request_stop();
  thread.join();
  EXPECT_TRUE(result.ok()) << result;
}

TEST(FollowerTest, EndsWhenTheLeaderShowsNoSignOfLife) {
  const auto ring = StepRing::Create(1, 64).value();
  Follower follower(*ring, 0, std::chrono::milliseconds(200));
  const Status status = follower.Join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "the group's leader has shown no sign of life for 0.2 s");
}

TEST(FollowerTest, AMessageOutOfOrderIsAnError) {
  const auto ring = StepRing::Create(1, 64).value();
  Follower follower(*ring, 0);
  const auto memory = ring->Prepare(StepMessageBytes({}, {}), {}, kLimit);
  EncodeStep({.number = 2, .input = {}, .copies = {}}, *memory);
  ring->Publish();
  EXPECT_EQ(Message(follower.Join()), "step message 2 follows 0 messages");
}

}  // namespace
}  // namespace baton

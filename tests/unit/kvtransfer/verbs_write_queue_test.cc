#include <arpa/inet.h>

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/verbs/write_mark.h"
#include "kvtransfer/verbs/write_queue.h"
#include "tests/unit/kvtransfer/fake_verbs.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kLargest = uint64_t{256} << 10;  // of one RDMA WRITE

class WriteQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    verbs_.devices = {
        {"a",
         true,
         IBV_LINK_LAYER_INFINIBAND,
         {FakeVerbs::GidEntry(IBV_GID_TYPE_IB, std::vector<uint8_t>(16, uint8_t{1}))}}};
    rail_ = *Rail::Open(verbs_.library(), "a", {});
    completions_ = *CompletionQueue::Create(*rail_, 16);
    queue_pair_ = *QueuePair::Create(*rail_, *completions_, {});
  }
  Status Post() { return writes_.Post(*queue_pair_, memories_); }
  std::vector<uint64_t> EndedAfter(uint64_t request) {
    std::vector<uint64_t> ended;
    writes_.OnCompletion(request, ended);
    return ended;
  }
  bool IsSignalled(size_t write) const {
    return (verbs_.writes[write].request.send_flags & IBV_SEND_SIGNALED) != 0;
  }

  FakeVerbs verbs_;
  std::unique_ptr<Rail> rail_;
  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<QueuePair> queue_pair_;
  const WriteQueue::Memories memories_{reinterpret_cast<const std::byte*>(0x10000), 5, 0x20000, 6};
  WriteQueue writes_{3, 8};
};

TEST_F(WriteQueueTest, OnlyTheLastWriteOfACopyHasImmediateDataAndACompletion) {
  const std::vector<WriteRun> runs = {{0, 100, 10}, {50, 200, 20}, {90, 300, 30}};
  const uint32_t mark = writes_.Push(7, runs);
  EXPECT_EQ(mark, MarkOf(3, 1));
  ASSERT_TRUE(Post().ok());
  ASSERT_EQ(verbs_.writes.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const FakeVerbs::Write& write = verbs_.writes[i];
    EXPECT_EQ(write.source.addr, 0x10000 + runs[i].source);
    EXPECT_EQ(write.source.length, runs[i].bytes);
    EXPECT_EQ(write.source.lkey, 5u);
    EXPECT_EQ(write.request.wr.rdma.remote_addr, 0x20000 + runs[i].destination);
    EXPECT_EQ(write.request.wr.rdma.rkey, 6u);
  }
  EXPECT_EQ(verbs_.writes[1].request.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(verbs_.writes[2].request.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(ntohl(verbs_.writes[2].request.imm_data), mark);
  EXPECT_FALSE(IsSignalled(0));
  EXPECT_TRUE(IsSignalled(2));
  EXPECT_EQ(writes_.bytes(), 60u);
  EXPECT_THAT(EndedAfter(verbs_.writes[2].request.wr_id), ElementsAre(7));
  EXPECT_EQ(writes_.bytes(), 0u);
}

TEST_F(WriteQueueTest, AnEmptyCopyIsOneWriteOfNoBytes) {
  writes_.Push(1, {});
  ASSERT_TRUE(Post().ok());
  ASSERT_EQ(verbs_.writes.size(), 1u);
  EXPECT_EQ(verbs_.writes[0].request.num_sge, 0);
  EXPECT_EQ(verbs_.writes[0].request.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
}

TEST_F(WriteQueueTest, ALongRunIsCut) {
  const WriteRun run{1, 2, 2 * kLargest + 9};
  writes_.Push(1, {&run, 1});
  ASSERT_TRUE(Post().ok());
  ASSERT_EQ(verbs_.writes.size(), 3u);
  EXPECT_EQ(verbs_.writes[1].source.addr, 0x10001 + kLargest);
  EXPECT_EQ(verbs_.writes[1].request.wr.rdma.remote_addr, 0x20002 + kLargest);
  EXPECT_EQ(verbs_.writes[2].source.length, 9u);
  EXPECT_EQ(verbs_.writes[2].request.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
}

// Runs that continue each other in the peer's memory become one write of up to three sources.
TEST_F(WriteQueueTest, RunsAreGathered) {
  WriteQueue gathers(0, 8, 3);
  const std::vector<WriteRun> runs = {{0, 100, 10},
                                      {50, 110, 20},
                                      {90, 130, 30},
                                      {200, 160, 5},          // the fourth
                                      {300, 170, 7},          // elsewhere
                                      {400, 177, kLargest}};  // does not fit any more
  gathers.Push(7, runs);
  ASSERT_TRUE(gathers.Post(*queue_pair_, memories_).ok());
  ASSERT_EQ(verbs_.writes.size(), 4u);
  using Sources = std::vector<std::pair<uint64_t, uint64_t>>;
  const auto expect = [&](size_t write, uint64_t to, const Sources& from) {
    EXPECT_EQ(verbs_.writes[write].request.wr.rdma.remote_addr, 0x20000 + to) << write;
    Sources sources;
    for (const ibv_sge& source : verbs_.writes[write].sources) {
      sources.emplace_back(source.addr - 0x10000, source.length);
      EXPECT_EQ(source.lkey, 5u);
    }
    EXPECT_EQ(sources, from) << write;
  };
  expect(0, 100, {{0, 10}, {50, 20}, {90, 30}});
  expect(1, 160, {{200, 5}});
  expect(2, 170, {{300, 7}, {400, kLargest - 7}});
  expect(3, 170 + kLargest, {{400 + kLargest - 7, 7}});
  EXPECT_EQ(verbs_.writes[2].request.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(verbs_.writes[3].request.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
}

TEST_F(WriteQueueTest, NoMoreIsPostedThanTheQueuePairTakes) {
  const std::vector<WriteRun> runs(20, WriteRun{0, 0, 1});
  writes_.Push(1, runs);
  writes_.Push(2, {});
  ASSERT_TRUE(Post().ok());
  ASSERT_EQ(verbs_.writes.size(), 8u);
  EXPECT_TRUE(IsSignalled(1)) << "without a completion the queue pair would stay full";
  EXPECT_TRUE(EndedAfter(2).empty());
  ASSERT_TRUE(Post().ok());
  EXPECT_EQ(verbs_.writes.size(), 10u);
  EXPECT_TRUE(EndedAfter(10).empty());
  ASSERT_TRUE(Post().ok());
  EXPECT_TRUE(EndedAfter(18).empty());
  ASSERT_TRUE(Post().ok());
  EXPECT_EQ(verbs_.writes.size(), 21u);
  EXPECT_THAT(EndedAfter(21), ElementsAre(1, 2));
  EXPECT_TRUE(writes_.is_empty());
}

TEST_F(WriteQueueTest, APostThatFailsIsReported) {
  verbs_.posts_left = 2;
  const std::vector<WriteRun> runs(5, WriteRun{0, 0, 1});
  writes_.Push(9, runs);
  const Status posted = Post();
  EXPECT_EQ(posted.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(posted)),
              testing::HasSubstr("queue pair 17 takes no send request"));
  std::vector<uint64_t> ids;
  writes_.TakeAll(ids);
  EXPECT_THAT(ids, ElementsAre(9));
  EXPECT_TRUE(writes_.is_empty());
}

TEST_F(WriteQueueTest, AQueuePairIsStoppedBeforeItIsDestroyed) {
  verbs_.states.clear();
  EXPECT_TRUE(queue_pair_->Destroy());
  EXPECT_THAT(verbs_.states, ElementsAre(IBV_QPS_ERR));
  EXPECT_TRUE(queue_pair_->Destroy());
  EXPECT_EQ(verbs_.states.size(), 1u);
}

}  // namespace
}  // namespace baton

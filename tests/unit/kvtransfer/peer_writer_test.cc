#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/data_plane/local_data_plane.h"
#include "tests/conformance/host_buffer.h"

// The order in which the writes to one peer are posted, and the bound on the bytes in flight.
namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeRegion final : public Region {
 public:
  uint32_t id() const override { return 0; }
};

// Records the window keys of posted writes. A test ends the writes.
struct FakeLink {
  std::vector<uint64_t> posted;
  std::vector<WriteEvent> events;
};

class FakeChannel final : public Channel {
 public:
  explicit FakeChannel(FakeLink& link) : link_(link) {}
  StatusOr<OpId> PostWrite(const WriteOp& op) override {
    link_.posted.push_back(op.window_key);
    return OpId(link_.posted.size());
  }
  void RequestAbort(OpId) override {}
  void Release(uint64_t) override {}
  void Fence() override {}
  size_t Poll(Time, std::span<WriteEvent> events) override {
    size_t count = 0;
    for (; count < events.size() && !link_.events.empty(); link_.events.pop_back()) {
      events[count++] = link_.events.back();
    }
    return count;
  }
  Status status() const override { return OkStatus(); }

 private:
  FakeLink& link_;
};

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(std::vector<std::unique_ptr<FakeLink>>& links) : links_(links) {}
  std::string_view name() const override { return "fake"; }
  TransportCaps caps() const override {
    return {.max_op_bytes = 4096, .max_op_runs = 16, .op_bytes = 512, .flight_bytes = 512};
  }
  int wait_fd() const override { return 0; }
  StatusOr<std::unique_ptr<Region>> Register(const Buffer&) override {
    return std::make_unique<FakeRegion>();
  }
  StatusOr<std::string> Listen() override { return std::string("here"); }
  Status OpenWindow(WriteWindow) override { return OkStatus(); }
  void CloseWindow(uint64_t) override {}
  size_t Poll(Time, std::span<Arrival>) override { return 0; }
  Status Reaches(std::string_view) const override { return OkStatus(); }
  StatusOr<std::unique_ptr<Channel>> Connect(const Region&, std::string_view, uint32_t) override {
    links_.push_back(std::make_unique<FakeLink>());
    return std::make_unique<FakeChannel>(*links_.back());
  }

 private:
  std::vector<std::unique_ptr<FakeLink>>& links_;
};

class IgnoreProgress final : public WriteListener {
 public:
  void OnPosted(
      const SessionKey&, uint32_t, uint32_t, std::span<const uint64_t>, uint64_t) override {}
  void OnWritten(const SessionKey&, uint32_t, uint64_t) override {}
  void OnWriteLost(const SessionKey&, uint32_t, const Status&) override {}
};

class PeerWriterTest : public testing::Test {
 protected:
  PeerWriterTest() {
    options_.layout = DenseLayout(
        {.layers = 1, .kv_heads = 4, .head_dim = 8, .block_tokens = 4, .dtype = DType::kF16});
    options_.shards = {{WholeModel(options_.layout), &arena_, kBlocks}};
    options_.transport.names = {"fake"};
    options_.make_transport = [this](std::string_view) {
      return std::make_unique<FakeTransport>(links_);
    };
    plane_ = *LocalDataPlane::Create(options_, /*listen=*/true);
    Hello theirs;
    theirs.shards = plane_->shards();
    for (auto& writer : writers_) {
      writer = *plane_->NewWriter(theirs);
      EXPECT_TRUE(writer->Connect().ok());
    }
  }

  // Queues the write of one block, which fills the flight of a channel. The key names the session.
  void Enqueue(uint64_t key, uint32_t index, bool urgent, size_t peer = 0) {
    const PeerWriter::Block block{index, {BlockId(index), BlockId(index)}};
    writers_[peer]->Enqueue(SessionKey(SessionId(key), Epoch(1)),
                            {.window_key = key, .end_group = 1, .urgent = urgent},
                            {&block, 1});
  }
  void Poll() {
    for (auto& writer : writers_) writer->Poll(Time{}, listener_);
  }
  // Posts all writes to a peer, one at a time. Returns their keys.
  const std::vector<uint64_t>& PostAll(size_t peer) {
    for (int i = 0; i < 20; ++i) {
      Poll();
      End(peer);
    }
    return links_[peer]->posted;
  }
  // The last write that was posted to the peer ends.
  void End(size_t peer) {
    FakeLink& link = *links_[peer];
    if (!link.posted.empty()) {
      link.events.push_back({OpId(link.posted.size()), WriteEvent::Kind::kDone, OkStatus(), {}});
    }
  }

  static constexpr uint32_t kBlocks = 16;
  HostBuffer arena_{size_t{kBlocks} * 512};
  KvTransferOptions options_;
  std::vector<std::unique_ptr<FakeLink>> links_;  // by peer
  std::unique_ptr<LocalDataPlane> plane_;
  std::array<std::unique_ptr<PeerWriter>, 2> writers_;
  IgnoreProgress listener_;
};

TEST_F(PeerWriterTest, WritesOfEqualUrgencyKeepTheirOrder) {
  Enqueue(1, 0, false);
  Enqueue(2, 0, false);
  Enqueue(1, 1, false);
  EXPECT_THAT(PostAll(0), ElementsAre(1, 2, 1));
}

TEST_F(PeerWriterTest, AnUrgentSessionOvertakesWithAllItsWrites) {
  Enqueue(1, 0, false);
  Enqueue(1, 1, false);
  Enqueue(2, 0, false);
  Enqueue(1, 2, false);
  Enqueue(2, 1, true);
  EXPECT_THAT(PostAll(0), ElementsAre(2, 2, 1, 1, 1));
}

TEST_F(PeerWriterTest, UrgentSessionsGoInTheOrderInWhichTheyBecameUrgent) {
  Enqueue(1, 0, false);
  Enqueue(2, 0, true);
  Enqueue(3, 0, true);
  Enqueue(2, 1, true);
  EXPECT_THAT(PostAll(0), ElementsAre(2, 3, 2, 1));
}

// The bytes in flight are the credits of one channel: a peer that takes nothing uses up only its
// own.
TEST_F(PeerWriterTest, ASlowPeerDoesNotStallAnother) {
  for (uint32_t i = 0; i < 4; ++i) Enqueue(1, i, true, 0);
  for (uint32_t i = 0; i < 4; ++i) Enqueue(2, i, false, 1);
  EXPECT_THAT(links_[0]->posted, IsEmpty());
  EXPECT_THAT(PostAll(1), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(links_[0]->posted, ElementsAre(1)) << "only what fits into the flight";
}

}  // namespace
}  // namespace baton

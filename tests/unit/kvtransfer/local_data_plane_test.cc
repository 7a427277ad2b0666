#include "kvtransfer/data_plane/local_data_plane.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/host_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 1000;
const SessionKey kSession(SessionId(7), Epoch(1));

class FakeRegion final : public Region {
 public:
  explicit FakeRegion(uint32_t id) : id_(id) {}
  uint32_t id() const override { return id_; }

 private:
  const uint32_t id_;
};

// Reports the arrivals that a test puts into `arrivals`.
class FakeTransport final : public Transport {
 public:
  std::string_view name() const override { return "fake"; }
  TransportCaps caps() const override { return {.max_op_bytes = 4096, .max_op_runs = 16}; }
  int wait_fd() const override { return 0; }
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& /*buffer*/) override {
    return std::make_unique<FakeRegion>(regions++);
  }
  StatusOr<std::string> Listen() override { return std::string("here"); }
  Status OpenWindow(WriteWindow window) override {
    if (windows.size() == max_windows) return MakeStatus(StatusCode::kInternal, "no room");
    windows[window.key] = window;
    return OkStatus();
  }
  void CloseWindow(uint64_t key) override { closed.insert(key); }
  size_t Poll(Time /*now*/, std::span<Arrival> into) override {
    size_t count = 0;
    for (; count < into.size() && !arrivals.empty(); arrivals.pop_front()) {
      into[count++] = arrivals.front();
    }
    return count;
  }
  Status Reaches(std::string_view /*descriptor*/) const override { return OkStatus(); }
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& /*local*/,
                                             std::string_view /*descriptor*/,
                                             uint32_t /*peer_region*/) override {
    return MakeStatus(StatusCode::kUnimplemented, "a fake does not send");
  }

  uint32_t regions = 0;
  size_t max_windows = 100;
  std::map<uint64_t, WriteWindow> windows;
  std::set<uint64_t> closed;
  std::deque<Arrival> arrivals;
};

// Lists the events as texts.
class Events final : public WindowListener {
 public:
  void OnArrival(const SessionKey& /*session*/,
                 const PieceArrival& piece,
                 std::string_view transport,
                 bool /*polls_for_seal*/) override {
    list.push_back(fmt::format("{}: link {} blocks {}+{} {} bytes",
                               transport,
                               piece.link,
                               piece.first,
                               piece.count,
                               piece.bytes));
  }
  void OnMisplaced(const SessionKey& /*session*/, const Status& error) override {
    list.emplace_back(Message(error));
  }
  void OnNote(const SessionKey& /*session*/, std::string_view note) override {
    list.push_back(fmt::format("note {}", note));
  }
  void OnWindowsClosed(const SessionKey& /*session*/, const Status& status) override {
    list.push_back(status.ok() ? "closed" : "unfenced");
  }
  std::vector<std::string> list;
};

// Two local shards of two heads each, filled by one peer that holds all four heads.
class LocalDataPlaneTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.layout = DenseLayout(
        {.layers = 1, .kv_heads = 4, .head_dim = 8, .block_tokens = 4, .dtype = DType::kF16});
    options_.worker = WorkerId("decode-0");
    options_.shards = {{{0, 1, 0, 2}, &arenas_[0], kBlocks}, {{0, 1, 2, 2}, &arenas_[1], kBlocks}};
    options_.transport.names = {"fake"};
    options_.make_transport = [this](std::string_view) -> StatusOr<std::unique_ptr<Transport>> {
      auto transport = std::make_unique<FakeTransport>();
      transport_ = transport.get();
      return transport;
    };
    plane_ = *LocalDataPlane::Create(options_, /*listen=*/true);
    PeerLinks peer;
    peer.boot = BootId(9);
    peer.sources = {WholeModel(options_.layout)};
    std::vector<KvShard> ours;
    for (const KvShardInfo& info : plane_->shards()) ours.push_back(info.shard);
    peer.links = *PlanLinks(options_.layout, peer.sources, ours);
    peer_ = std::make_shared<const PeerLinks>(peer);
  }

  Status Open() { return plane_->OpenWindows(kSession, {kKey, {{BlockId(5), BlockId(3)}}, peer_}); }
  std::vector<std::string> Poll() {
    Events events;
    plane_->Poll(Time{}, events);
    return events.list;
  }
  static Arrival Event(Arrival::Kind kind, uint64_t key) {
    Arrival event;
    event.kind = kind;
    event.window_key = key;
    return event;
  }
  // The payload of `count` blocks of `link`, written at `ranges`.
  static Arrival Landed(
      uint64_t key, uint32_t link, uint32_t first, uint64_t bytes, std::vector<ByteRange> ranges) {
    Arrival event = Event(Arrival::Kind::kArrived, key);
    event.tag = PieceTag(link, first);
    event.bytes = bytes;
    event.ranges = std::move(ranges);
    return event;
  }

  static constexpr uint32_t kBlocks = 8;
  static constexpr uint64_t kBlockBytes = 256;  // K and V of two heads
  HostBuffer arenas_[2] = {HostBuffer(kBlocks * kBlockBytes), HostBuffer(kBlocks* kBlockBytes)};
  KvTransferOptions options_;
  FakeTransport* transport_ = nullptr;
  std::unique_ptr<LocalDataPlane> plane_;
  std::shared_ptr<const PeerLinks> peer_;
};

TEST_F(LocalDataPlaneTest, OpensAWindowOfTheGrantedBlocksOnEachShard) {
  ASSERT_TRUE(Open().ok());
  ASSERT_EQ(transport_->windows.size(), 2u);
  for (const uint64_t shard : {0, 1}) {
    const WriteWindow& window = transport_->windows.at(kKey + shard);
    EXPECT_EQ(window.region, shard);
    const std::vector<ByteRange> expected = {{3 * kBlockBytes, kBlockBytes},
                                             {5 * kBlockBytes, kBlockBytes}};
    EXPECT_EQ(window.ranges, expected);
    EXPECT_EQ(window.peer, BootId(9));
  }
}

TEST_F(LocalDataPlaneTest, ReportsPiecesThatLandedWhereTheirTagSays) {
  ASSERT_TRUE(Open().ok());
  transport_->arrivals = {Landed(kKey, 0, 0, kBlockBytes, {{5 * kBlockBytes, kBlockBytes}}),
                          Landed(kKey + 1,
                                 1,
                                 0,
                                 2 * kBlockBytes,
                                 {{5 * kBlockBytes, kBlockBytes}, {3 * kBlockBytes, kBlockBytes}})};
  EXPECT_EQ(Poll(),
            (std::vector<std::string>{"fake: link 0 blocks 0+1 256 bytes",
                                      "fake: link 1 blocks 0+2 512 bytes"}));
}

TEST_F(LocalDataPlaneTest, ReportsWritesThatTheirTagDoesNotExplain) {
  ASSERT_TRUE(Open().ok());
  transport_->arrivals = {
      // Into the block of index 1, tagged as index 0.
      Landed(kKey, 0, 0, kBlockBytes, {{3 * kBlockBytes, kBlockBytes}}),
      // A link to the other shard, and a link that does not exist.
      Landed(kKey, 1, 0, kBlockBytes, {{5 * kBlockBytes, kBlockBytes}}),
      Landed(kKey, 2, 0, kBlockBytes, {{5 * kBlockBytes, kBlockBytes}}),
      // Half a block, more blocks than granted, a block after the last.
      Landed(kKey, 0, 0, kBlockBytes / 2, {{5 * kBlockBytes, kBlockBytes / 2}}),
      Landed(kKey, 0, 1, 2 * kBlockBytes, {{3 * kBlockBytes, 2 * kBlockBytes}}),
      Landed(kKey, 0, 3, kBlockBytes, {{3 * kBlockBytes, kBlockBytes}}),
  };
  const std::vector<std::string> events = Poll();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_NE(events[0].find("went to other addresses"), std::string::npos) << events[0];
  EXPECT_NE(events[1].find("names link 1, which does not lead there"), std::string::npos);
  EXPECT_NE(events[2].find("names link 2, which does not lead there"), std::string::npos);
  for (size_t i = 3; i < 6; ++i) {
    EXPECT_NE(events[i].find("does not fit the granted blocks"), std::string::npos) << events[i];
  }
}

// Layer 0 has a state of 3 · 256 B; blocks of layer 1 have 256 B, too. The sender's state has other
// blocks: its ranks have one head each.
class LocalStateTest : public LocalDataPlaneTest {
 protected:
  void SetUp() override {
    LocalDataPlaneTest::SetUp();
    options_.layout = DenseLayout(
        {.layers = 2,
         .kv_heads = 2,
         .head_dim = 8,
         .block_tokens = 4,
         .dtype = DType::kF16,
         .state = {
             .layers = {0},
             .planes = {{.name = "memory", .heads = 2, .dim = 3 * 32, .dtype = DType::kF32}}}});
    options_.shards = {{WholeModel(options_.layout), &arenas_[0], kBlocks}};
    plane_ = *LocalDataPlane::Create(options_, /*listen=*/true);
    PeerLinks peer;
    peer.sources = {{0, 2, 0, 1}, {0, 2, 1, 1}};
    peer.links = *PlanLinks(options_.layout, peer.sources, {{options_.shards[0].shard}});
    for (uint32_t link = 0; link < peer.links.size(); ++link) {
      if (peer.links[link].cache_group == 1) state_links_.push_back(link);
    }
    peer_ = std::make_shared<const PeerLinks>(peer);
    ASSERT_TRUE(plane_->OpenWindows(kSession, {kKey, {{BlockId(5)}, kState}, peer_}).ok());
  }

  const std::vector<BlockId> kState = {BlockId(2), BlockId(7), BlockId(1)};
  std::vector<uint32_t> state_links_;
};

TEST_F(LocalStateTest, TheWindowHasTheBlocksOfTheState) {
  const std::vector<ByteRange> expected = {{1 * kBlockBytes, 2 * kBlockBytes},
                                           {5 * kBlockBytes, kBlockBytes},
                                           {7 * kBlockBytes, kBlockBytes}};
  EXPECT_EQ(transport_->windows.at(kKey).ranges, expected);
}

TEST_F(LocalStateTest, AStateLandsInItsBlocksInOrder) {
  ASSERT_EQ(state_links_.size(), 2u);
  constexpr uint64_t kHead = 384;  // a block and a half
  const std::vector<ByteRange> first = {{2 * kBlockBytes, kBlockBytes},
                                        {7 * kBlockBytes, kBlockBytes / 2}};
  const std::vector<ByteRange> second = {{7 * kBlockBytes + kBlockBytes / 2, kBlockBytes / 2},
                                         {1 * kBlockBytes, kBlockBytes}};
  transport_->arrivals = {Landed(kKey, state_links_[0], 0, kHead, first),
                          Landed(kKey, state_links_[1], 0, kHead, second),
                          // The head of the other link.
                          Landed(kKey, state_links_[0], 0, kHead, second),
                          // In the order of the blocks in the arena.
                          Landed(kKey, state_links_[0], 0, kHead, {{kBlockBytes, kHead}}),
                          // A second piece, two of them, a part.
                          Landed(kKey, state_links_[0], 1, kHead, first),
                          Landed(kKey, state_links_[0], 0, 2 * kHead, first),
                          Landed(kKey, state_links_[0], 0, kBlockBytes, {first[0]})};
  const std::vector<std::string> events = Poll();
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0], fmt::format("fake: link {} blocks 0+1 384 bytes", state_links_[0]));
  EXPECT_EQ(events[1], fmt::format("fake: link {} blocks 0+1 384 bytes", state_links_[1]));
  for (const size_t i : {2, 3}) {
    EXPECT_NE(events[i].find("went to other addresses"), std::string::npos) << events[i];
  }
  for (const size_t i : {4, 5, 6}) {
    EXPECT_NE(events[i].find("does not fit the granted blocks"), std::string::npos) << events[i];
  }
}

TEST_F(LocalDataPlaneTest, WindowsAreClosedWhenTheLastOneIs) {
  ASSERT_TRUE(Open().ok());
  plane_->CloseWindows(kSession);
  EXPECT_EQ(transport_->closed, (std::set<uint64_t>{kKey, kKey + 1}));
  Arrival unfenced = Event(Arrival::Kind::kUnfenced, kKey + 1);
  unfenced.status = MakeStatus(StatusCode::kDeadlineExceeded, "a peer does not answer");
  transport_->arrivals = {Event(Arrival::Kind::kClosed, kKey), unfenced};
  EXPECT_EQ(Poll(), std::vector<std::string>{"unfenced"});
  transport_->arrivals = {Event(Arrival::Kind::kClosed, kKey + 1)};
  EXPECT_EQ(Poll(), std::vector<std::string>{"closed"});
  // The windows are forgotten: late events of their keys are ignored.
  transport_->arrivals = {Landed(kKey, 0, 0, kBlockBytes, {{5 * kBlockBytes, kBlockBytes}})};
  EXPECT_TRUE(Poll().empty());
}

TEST_F(LocalDataPlaneTest, AFailedOpenIsClosedToo) {
  transport_->max_windows = 1;
  EXPECT_FALSE(Open().ok());
  plane_->CloseWindows(kSession);
  EXPECT_TRUE(Poll().empty());
  transport_->arrivals = {Event(Arrival::Kind::kClosed, kKey)};
  EXPECT_EQ(Poll(), std::vector<std::string>{"closed"});
}

TEST_F(LocalDataPlaneTest, ASessionWithoutAnOpenWindowIsReportedClosed) {
  transport_->max_windows = 0;
  EXPECT_FALSE(Open().ok());
  plane_->CloseWindows(kSession);
  EXPECT_EQ(Poll(), std::vector<std::string>{"closed"});
  EXPECT_TRUE(Poll().empty());
}

TEST_F(LocalDataPlaneTest, PassesNotesOn) {
  ASSERT_TRUE(Open().ok());
  Arrival note = Event(Arrival::Kind::kNote, kKey + 1);
  note.note = "seal";
  transport_->arrivals = {note};
  EXPECT_EQ(Poll(), std::vector<std::string>{"note seal"});
}

}  // namespace
}  // namespace baton

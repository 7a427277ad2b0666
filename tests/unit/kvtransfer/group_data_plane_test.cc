#include "kvtransfer/group/group_data_plane.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/host_buffer.h"
#include "tests/conformance/layout_order.h"

// Hand-offs between workers whose ranks are on several hosts: every shard but the first is behind
// messages, and its bytes come from, or go to, a data plane of its own.
namespace baton {
namespace {

using ::testing::HasSubstr;

KvShard Heads(int32_t first, int32_t count) {
  return {.first_layer = 0, .layer_count = 2, .first_head = first, .head_count = count};
}
KvShard Layer(int32_t layer) {
  return {.first_layer = layer, .layer_count = 1, .first_head = 0, .head_count = 4};
}

const std::vector<KvShard> kTwoTensor = {Heads(0, 2), Heads(2, 2)};
const std::vector<KvShard> kFourTensor = {Heads(0, 1), Heads(1, 1), Heads(2, 1), Heads(3, 1)};
const std::vector<KvShard> kTwoStages = {Layer(0), Layer(1)};

HandoffPair::Options Between(const std::vector<KvShard>& from, const std::vector<KvShard>& to) {
  HandoffPair::Options options;
  options.sender_shards = from;
  options.receiver_shards = to;
  options.on_other_hosts = true;
  return options;
}

void ExpectHandoff(HandoffPair& pair, SessionId id) {
  const std::vector<BlockId> source = Blocks(3, 10);
  pair.Send(id, source, 4, "first token 42");
  ASSERT_TRUE(pair.received().WaitEnd(id));
  ASSERT_TRUE(pair.sent().WaitEnd(id));
  const SessionLog received = pair.received().Get(id);
  EXPECT_TRUE(received.committed) << received.status;
  EXPECT_EQ(received.payload, "first token 42");
  EXPECT_TRUE(pair.sent().Get(id).status.ok()) << pair.sent().Get(id).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(id)));
}

TEST(GroupDataPlaneTest, MovesEveryByteBetweenAllShapes) {
  const std::vector<std::vector<KvShard>> shapes = {kTwoTensor, kFourTensor, kTwoStages};
  for (const auto& from : shapes) {
    for (const auto& to : shapes) {
      HandoffPair pair(Between(from, to));
      ExpectHandoff(pair, SessionId(1));
      ExpectHandoff(pair, SessionId(2));
    }
  }
}

// Layers 0 and 1 have states. The blocks of a state have one number on all ranks.
TEST(GroupDataPlaneTest, MovesTheStateBetweenAllShapes) {
  const std::vector<std::vector<KvShard>> shapes = {
      {{0, 4, 0, 1}, {0, 4, 1, 3}}, {{0, 2, 0, 4}, {2, 2, 0, 4}}, {{0, 4, 0, 2}, {0, 4, 2, 2}}};
  for (const auto& from : shapes) {
    for (const auto& to : shapes) {
      HandoffPair::Options options = Between(from, to);
      options.layout = HybridLayout(4, 4, 8, 4);
      HandoffPair pair(options);
      const std::vector<BlockId> source = Blocks(1, 5);
      const std::vector<BlockId> state =
          Blocks(9, static_cast<uint32_t>(StateBlocks(options.layout, from)));
      for (const SessionId id : {SessionId(1), SessionId(2)}) {
        pair.Send(id, source, 2, "x", state);
        ASSERT_TRUE(pair.received().WaitEnd(id));
        ASSERT_TRUE(pair.sent().WaitEnd(id));
        EXPECT_TRUE(pair.received().Get(id).committed) << pair.received().Get(id).status;
        EXPECT_TRUE(pair.SameContent(source, pair.granted(id)));
        EXPECT_TRUE(pair.SameState(state, pair.granted_state(id)));
        EXPECT_EQ(pair.sent().Get(id).stats.bytes, pair.received().Get(id).stats.bytes);
      }
      // No piece is outstanding.
      pair.DisconnectSender();
      WaitUntil([&] { return pair.sender().Stats().peers == 0; });
      const auto peers = pair.sender().Stats().by_peer;
      EXPECT_EQ(peers.at(WorkerId(HandoffPair::kReceiverName)).fences, 0u);
    }
  }
}

TEST(GroupDataPlaneTest, EachShardIsReachedAtItsOwnHost) {
  HandoffPair pair(Between(kTwoTensor, kFourTensor));
  const Hello& hello = pair.receiver().hello();
  ASSERT_EQ(hello.shards.size(), 4U);
  std::set<std::string> descriptors;
  for (const KvShardInfo& shard : hello.shards) {
    ASSERT_EQ(shard.endpoints.size(), 1U);
    descriptors.insert(shard.endpoints[0].descriptor);
  }
  EXPECT_EQ(descriptors.size(), 4U);
}

TEST(GroupDataPlaneTest, AnAbortedHandoffReleasesItsBlocksAndAnotherFollows) {
  HandoffPair pair(Between(kTwoTensor, kTwoStages));
  pair.Offer(SessionId(1), 40);
  pair.sender().ChunkReady(SessionId(1), Epoch(1), 0, Blocks(0, 2));
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const SessionLog& log) { return log.granted; }));
  pair.sender().Abort(SessionId(1), Epoch(1), MakeStatus(StatusCode::kCancelled, "enough"));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_FALSE(pair.received().Get(SessionId(1)).committed);
  WaitUntil([&] { return pair.receiver().Stats().draining == 0; });
  EXPECT_EQ(pair.receiver().Stats().quarantined, 0U);
  EXPECT_EQ(pair.sender().Stats().quarantined, 0U);
  ExpectHandoff(pair, SessionId(2));
}

TEST(GroupDataPlaneTest, ABrokenControlStreamEndsTheSessions) {
  HandoffPair pair(Between(kTwoTensor, kTwoTensor));
  pair.Offer(SessionId(1), 40);
  pair.sender().ChunkReady(SessionId(1), Epoch(1), 0, Blocks(0, 2));
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const SessionLog& log) { return log.granted; }));
  pair.DisconnectSender();
  pair.DisconnectReceiver();
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.receiver().Stats().quarantined, 0U);
}

// One shard on another host, whose rank answers every call at once and reports what the test says.
class ScriptedPort final : public ShardPort {
 public:
  const std::vector<uint32_t>& shards() const override { return shards_; }
  Status Send(uint32_t shard, PlaneRole /*plane*/, std::string_view message) override {
    const auto command = DecodeShardCommand(message);
    EXPECT_TRUE(command.ok()) << command.status();
    kinds.push_back(command->kind);
    if (command->call == 0) return OkStatus();
    ShardEvent answer;
    answer.call = command->call;
    answer.status = next_answer;
    listener_(shard, Encode(answer));
    return OkStatus();
  }
  void Listen(PlaneRole /*plane*/, Listener listener) override { listener_ = std::move(listener); }
  void Report(const ShardEvent& event) { listener_(1, Encode(event)); }

  std::vector<ShardCommand::Kind> kinds;
  Status next_answer;

 private:
  const std::vector<uint32_t> shards_ = {1};
  Listener listener_;
};

class ClosedWindows final : public WindowListener {
 public:
  void OnArrival(const SessionKey&, const PieceArrival&, std::string_view, bool) override {}
  void OnMisplaced(const SessionKey&, const Status&) override {}
  void OnNote(const SessionKey&, std::string_view) override {}
  void OnWindowsClosed(const SessionKey&, const Status& status) override {
    closed.push_back(status.code());
  }
  std::vector<StatusCode> closed;
};

class ScriptedShardTest : public testing::Test {
 protected:
  ScriptedShardTest() {
    options_.worker = WorkerId("decode-0");
    options_.layout = DenseLayout(
        {.layers = 2, .kv_heads = 4, .head_dim = 8, .block_tokens = 4, .dtype = DType::kF16});
    options_.transport.require_transport = "tcp";
    options_.transport.listen_address = "127.0.0.1:0";
    options_.shards = {{kTwoTensor[0], &arena_, 8}, {kTwoTensor[1], nullptr, 8}};
    plane_ = *GroupDataPlane::Create(options_, /*listen=*/true, port_);
    PeerLinks peer = {.sources = {WholeModel(options_.layout)}, .links = {}};
    peer.links = *PlanLinks(options_.layout, peer.sources, kTwoTensor);
    peer_ = std::make_shared<const PeerLinks>(std::move(peer));
  }
  Status Open() { return plane_->OpenWindows(key_, {1000, {{BlockId(5), BlockId(3)}}, peer_}); }
  void ReportClosed(const Status& status) {
    ShardEvent event;
    event.kind = ShardEvent::Kind::kWindowsClosed;
    event.session = key_;
    event.status = status;
    port_.Report(event);
  }
  std::vector<StatusCode> Poll() {
    ClosedWindows events;
    plane_->Poll(SteadyClock().Now(), events);
    return events.closed;
  }

  const SessionKey key_{SessionId(7), Epoch(1)};
  HostBuffer arena_{size_t{1} << 16};
  KvTransferOptions options_;
  ScriptedPort port_;
  std::unique_ptr<GroupDataPlane> plane_;
  std::shared_ptr<const PeerLinks> peer_;
};

TEST_F(ScriptedShardTest, AWindowOnAnotherHostHoldsTheSession) {
  ASSERT_TRUE(Open().ok());
  plane_->CloseWindows(key_);
  EXPECT_EQ(port_.kinds.back(), ShardCommand::Kind::kCloseWindows);
  // This host's window is closed; the other one's sender does not answer.
  EXPECT_TRUE(Poll().empty());
  ReportClosed(MakeStatus(StatusCode::kUnavailable, "not fenced"));
  EXPECT_EQ(Poll(), std::vector<StatusCode>({StatusCode::kUnavailable}));
  ReportClosed(OkStatus());
  EXPECT_EQ(Poll(), std::vector<StatusCode>({StatusCode::kOk}));
}

TEST_F(ScriptedShardTest, AWindowThatAnotherHostCannotOpenIsAnError) {
  port_.next_answer = MakeStatus(StatusCode::kResourceExhausted, "no room");
  EXPECT_EQ(Open(), port_.next_answer);
}

TEST(ShardMessagesTest, AreReadAsTheyWereWritten) {
  ShardCommand command;
  command.kind = ShardCommand::Kind::kEnqueue;
  command.call = 7;
  command.writer = 3;
  command.session = {SessionId(5), Epoch(2)};
  command.terms = {.window_key = 99,
                   .checksums = false,
                   .cache_group = 1,
                   .first_group = 2,
                   .end_group = 4,
                   .held = true,
                   .urgent = true};
  command.blocks = {{4, {BlockId(1), BlockId(8)}}, {6, {BlockId(2), BlockId(9)}}};
  command.hello = "hello";
  command.granted = {{BlockId(11)}, {BlockId(12), BlockId(13)}};
  command.boot = BootId(12);
  command.sources = {Heads(1, 3)};
  const auto read = DecodeShardCommand(Encode(command));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Encode(*read), Encode(command));
  EXPECT_EQ(read->terms.end_group, 4U);
  EXPECT_EQ(read->blocks[1].pair.destination, BlockId(9));
  EXPECT_EQ(read->boot, command.boot);
  EXPECT_EQ(read->sources, command.sources);

  ShardEvent event;
  event.kind = ShardEvent::Kind::kWriteLost;
  event.status = MakeStatus(StatusCode::kUnavailable, "gone");
  event.checksums = {1, 2, 3};
  event.endpoints = {{"tcp", "1|127.0.0.1:9", 4}};
  const auto told = DecodeShardEvent(Encode(event));
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(Encode(*told), Encode(event));
  EXPECT_EQ(told->status, event.status);
  EXPECT_EQ(told->endpoints, event.endpoints);
}

TEST(ShardMessagesTest, OtherBytesAreRefused) {
  const std::string good = Encode(ShardCommand{});
  EXPECT_THAT(std::string(Message(DecodeShardCommand(good + "x").status())),
              HasSubstr("end is followed by more bytes"));
  EXPECT_FALSE(DecodeShardCommand(good.substr(0, good.size() - 1)).ok());
  std::string kind = good;
  kind[0] = 100;
  EXPECT_THAT(std::string(Message(DecodeShardCommand(kind).status())),
              HasSubstr("kind is 100, which is none"));
}

}  // namespace
}  // namespace baton

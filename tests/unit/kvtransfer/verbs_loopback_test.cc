// The conformance suite and whole hand-offs over verbs on imaginary devices, which the sanitizers
// see. tests/rdma_vm has the same over soft-RoCE.

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/verbs/verbs_transport.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/layout_order.h"
#include "tests/conformance/transport_conformance.h"
#include "tests/fakes/loopback_verbs.h"

namespace baton {
namespace {

StatusOr<std::unique_ptr<Transport>> On(std::vector<std::string> devices,
                                        std::string* log = nullptr) {
  TransportOptions options;
  options.boot = HandoffPair::kBoot;
  options.listen_address = "127.0.0.1:0";
  options.fence_timeout = std::chrono::milliseconds(500);
  options.verbs.devices = std::move(devices);
  const auto keep = [log](std::string_view line) {
    if (log != nullptr) *log += line;
  };
  return VerbsTransport::Create(&LoopbackVerbs(), options, nullptr, keep, {});
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         TransportConformance,
                         testing::Values(TransportUnderTest{"verbs",
                                                            [] { return *On({"loop0"}); },
                                                            HostDevice,
                                                            [] { return *On({"loop1"}); },
                                                            HostDevice},
                                         TransportUnderTest{"verbs_two_rails",
                                                            [] {
                                                              return *On({"loop0", "loop1"});
                                                            },
                                                            HostDevice,
                                                            [] {
                                                              return *On({"loop1", "loop0"});
                                                            },
                                                            HostDevice}),
                         [](const auto& param) { return param.param.name; });

// The LoopbackVerbs, which counts the messages (RDMA SEND).
std::atomic<int> messages = 0;

VerbsLibrary CountingVerbs() {
  VerbsLibrary verbs = LoopbackVerbs();
  verbs.open_device = [](ibv_device* device) {
    ibv_context* const context = LoopbackVerbs().open_device(device);
    static const auto post_send = context->ops.post_send;
    context->ops.post_send = [](ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) {
      for (const ibv_send_wr* request = first; request != nullptr; request = request->next) {
        messages += request->opcode == IBV_WR_SEND ? 1 : 0;
      }
      return post_send(pair, first, bad);
    };
    return context;
  };
  return verbs;
}

// The window comes unasked, and the report, SEAL and the end of the window are one message. They
// are one if the sender knows the last chunk and SEAL when it starts the write. GRANT therefore
// waits until both are in the sender's queue, however long the threads of the test are not running.
TEST(VerbsHandoffTest, ABlockTakesThreeMessages) {
  static const VerbsLibrary verbs = CountingVerbs();
  HandoffPair::Options options;
  options.transport = "verbs";
  options.make_transport = [](std::string_view) {
    TransportOptions transport;
    transport.boot = HandoffPair::kBoot;
    transport.listen_address = "127.0.0.1:0";
    return VerbsTransport::Create(&verbs, transport, nullptr, {}, {});
  };
  std::atomic<uint64_t> sealed = 0;  // the last session
  HandoffPair pair(options);
  pair.filter = [&](const Envelope& envelope, bool) {
    if (!std::holds_alternative<Grant>(envelope.message)) return true;
    WaitUntil([&] { return sealed >= envelope.session.value(); });
    return true;
  };
  const std::vector<BlockId> source = Blocks(0, 1);
  const auto send = [&](SessionId id) {
    pair.Send(id, source, 1, "x");
    sealed = id.value();
    EXPECT_TRUE(pair.received().WaitEnd(id));
    EXPECT_TRUE(pair.sent().WaitEnd(id));
  };
  send(SessionId(1));  // may come before the connection, so that it has to ask
  constexpr int kHandoffs = 40;
  std::vector<int> counts;
  for (uint64_t id = 2; id < 2 + kHandoffs; ++id) {
    messages = 0;
    send(SessionId(id));
    counts.push_back(messages);
  }
  // kWindow; kLanded with SEAL and kDrained; kAck. Each gives credits back, too.
  EXPECT_THAT(counts, testing::Each(3));
}

// Their owner computes on them.
TEST(VerbsHandoffTest, ProcessorsAreNotHeldWhileAWriteIsUnderWay) {
  const auto sender = *On({"loop0"});
  const auto receiver = *On({"loop1"});
  EXPECT_FALSE(sender->caps().busy_polls);
  TestMemory from(HostDevice(), 4096);
  TestMemory to(HostDevice(), 4096);
  const auto source = *sender->Register(from.buffer());
  const auto destination = *receiver->Register(to.buffer());
  const auto channel = *sender->Connect(*source, *receiver->Listen(), destination->id());
  const WriteRun run{0, 0, 4096};
  ASSERT_TRUE(channel->PostWrite({.runs = {&run, 1}, .window_key = 1}).ok());
  std::array<WriteEvent, 4> events;
  std::array<Arrival, 4> arrivals;
  for (int i = 0; i < 20; ++i) {
    (void)channel->Poll(SteadyClock().Now(), events);
    EXPECT_FALSE(channel->wants_poll());
    (void)receiver->Poll(SteadyClock().Now(), arrivals);
  }
}

TEST(VerbsHandoffTest, MovesEveryBlockBetweenUnequalShapes) {
  HandoffPair::Options options;
  options.transport = "verbs";
  options.make_transport = [](std::string_view) { return On({"loop0"}); };
  options.receiver_shards = {{0, 2, 0, 1}, {0, 2, 1, 1}, {0, 2, 2, 2}};
  options.op_bytes = 1;  // one block a write
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 24);
  for (uint64_t id = 1; id <= 3; ++id) {
    pair.Send(SessionId(id), source, 5, "x");
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(id)));
    ASSERT_TRUE(pair.sent().WaitEnd(SessionId(id)));
    const SessionLog received = pair.received().Get(SessionId(id));
    ASSERT_TRUE(received.committed) << received.status;
    EXPECT_EQ(received.stats.transport, "verbs");
    EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(id))));
  }
}

TEST(VerbsHandoffTest, MovesAStateBetweenUnequalShapes) {
  HandoffPair::Options options;
  options.transport = "verbs";
  options.make_transport = [](std::string_view) { return On({"loop0", "loop1"}); };
  options.layout = HybridLayout(6, 4, 8, 4);
  options.sender_shards = {{0, 6, 0, 1}, {0, 6, 1, 3}};
  options.receiver_shards = {{0, 2, 0, 4}, {2, 2, 0, 4}, {4, 2, 0, 4}};
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 5);
  const std::vector<BlockId> state =
      Blocks(7, static_cast<uint32_t>(StateBlocks(options.layout, options.sender_shards)));
  pair.Send(SessionId(1), source, 2, "x", state);
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.received().Get(SessionId(1)).committed)
      << pair.received().Get(SessionId(1)).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
  EXPECT_TRUE(pair.SameState(state, pair.granted_state(SessionId(1))));
}

}  // namespace
}  // namespace baton

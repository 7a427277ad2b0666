#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/memory_transport.h"
#include "tests/fakes/fake_gpu.h"

// Whole hand-offs whose writes arrive damaged, late or never.
namespace baton {
namespace {

TEST(DamagedHandoffTest, DamageIsCountedBeforeTheSessionEnds) {
  FakeGpu gpu;
  HandoffPair pair(HandoffPair::Options::OverCudaIpc(gpu, gpu));
  std::atomic<bool> resends_pass = false;
  pair.filter = [&](const Envelope& envelope, bool) {
    return resends_pass || !std::holds_alternative<Resend>(envelope.message);
  };
  gpu.Corrupt(true);
  pair.Send(SessionId(1), Blocks(0, 1), 1, "x");
  WaitUntil([&] { return pair.receiver().Stats().checksum_errors > 0; });
  EXPECT_EQ(pair.receiver().Stats().checksum_errors, 1u);
  EXPECT_EQ(pair.received().Get(SessionId(1)).ends, 0);
  gpu.Corrupt(false);
  resends_pass = true;
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  WaitUntil([&] { return pair.receiver().Stats().finished == 1; });
  EXPECT_EQ(pair.receiver().Stats().checksum_errors, 1u);
}

// Sessions over a transport that applies writes late, out of order, twice, damaged or never: every
// session ends on both sides, and committed blocks are correct.
TEST(DelayedWriteHandoffTest, EndsAndCommitsOnlyWhatIsRight) {
  WriteFaults faults;
  faults.late = 0.5;
  faults.twice = 0.3;
  faults.never = 0.01;
  faults.corrupt = 0.05;
  MemoryFabric fabric(faults);
  HandoffPair::Options options;
  options.transport = "memory";
  options.make_transport = [&](std::string_view) { return fabric.MakeTransport(); };
  options.blocks = 480;
  options.op_bytes = 1;
  // Ends the sessions that lose a write; the others need a fraction of it.
  options.offer_timeout = std::chrono::seconds(2);
  HandoffPair pair(options);
  constexpr uint32_t kSessions = 48;
  for (uint32_t i = 0; i < kSessions; ++i) {
    pair.Send(SessionId(i), Blocks(i * 10, 10), 3, std::to_string(i));
  }
  uint32_t committed = 0;
  for (uint32_t i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(i)));
    ASSERT_TRUE(pair.sent().WaitEnd(SessionId(i)));
    const SessionLog log = pair.received().Get(SessionId(i));
    EXPECT_EQ(log.ends, 1);
    if (!log.committed) continue;
    ++committed;
    EXPECT_TRUE(pair.SameContent(Blocks(i * 10, 10), pair.granted(SessionId(i)))) << i;
  }
  EXPECT_GT(committed, kSessions / 4);
  EXPECT_GT(pair.receiver().Stats().checksum_errors, 0u);
}

}  // namespace
}  // namespace baton

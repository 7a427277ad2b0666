#include <sys/socket.h>

#include <atomic>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/local_socket.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/messages/codec.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

// Any process that holds a session's window can send notes for it, but only the session's SEAL is
// accepted; any other note ends the session.
TEST(NoteHandoffTest, OtherNotesThanTheSessionsSealEndIt) {
  FakeGpu gpu;
  HandoffPair pair(HandoffPair::Options::OverCudaIpc(gpu, gpu));
  std::atomic<uint64_t> key = 0;
  pair.filter = [&](const Envelope& envelope, bool) {
    if (const auto* grant = std::get_if<Grant>(&envelope.message)) key = grant->window_key;
    return true;
  };
  const std::string descriptor = pair.receiver().hello().shards.at(0).endpoints.at(0).descriptor;
  IpcSocket peer(
      *ConnectLocal(descriptor.substr(descriptor.find("baton-ipc-"), 26), SOCK_SEQPACKET));
  Heard heard;
  const auto say = [&](SidebandType type, std::string text = {}) {
    SidebandFrame frame = FrameOf(type, key);
    frame.text = std::move(text);
    EXPECT_TRUE(peer.Send(frame).ok());
  };
  const auto await = [&](SidebandType type) {
    const Time until = SteadyClock().Now() + std::chrono::seconds(10);
    while (heard.Last(type) == nullptr && SteadyClock().Now() < until) Hear(peer, heard);
    EXPECT_NE(heard.Last(type), nullptr);
  };
  say(SidebandType::kHello);
  await(SidebandType::kWelcome);
  const auto expect_end = [&](SessionId id, const std::string& note, const std::string& why) {
    pair.Offer(id, 8);
    ASSERT_TRUE(pair.sent().Wait(id, [](const auto& log) { return log.granted; }));
    heard = {};
    say(SidebandType::kAsk);
    await(SidebandType::kWindow);
    say(SidebandType::kNote, note);
    say(SidebandType::kDrained);
    ASSERT_TRUE(pair.received().WaitEnd(id));
    const SessionLog log = pair.received().Get(id);
    EXPECT_FALSE(log.committed);
    EXPECT_NE(Message(log.status).find(why), std::string::npos) << log.status;
  };
  expect_end(SessionId(1), "garbage", "kind is 103");
  expect_end(SessionId(2),
             EncodeEnvelope({SessionId(3), Epoch(1), Seal{}}),
             "SEAL of session 3.1 came as a note");
  expect_end(SessionId(4),
             EncodeEnvelope({SessionId(4), Epoch(1), Renew{}}),
             "RENEW of session 4.1 came as a note");
}

}  // namespace
}  // namespace baton

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/socket_control.h"

namespace baton {
namespace {

constexpr uint32_t kArenaBlocks = 16;
const KvLayout kLayout{.layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4};
const SessionId kSession(1);

KvTransferOptions MakeOptions(const std::string& transport, const char* name, const Buffer& arena) {
  KvTransferOptions options;
  options.worker = WorkerId(name);
  options.layout = kLayout;
  options.shards = {{WholeModel(kLayout), &arena, kArenaBlocks}};
  options.transport.require_transport = transport;
  options.transport.listen_address = "127.0.0.1:0";
  options.times = {std::chrono::milliseconds(50),
                   std::chrono::milliseconds(500),
                   std::chrono::milliseconds(300),
                   std::chrono::milliseconds(300)};
  return options;
}

size_t ArenaBytes() {
  return ShardBlockBytes(kLayout, WholeModel(kLayout)) * kArenaBlocks;
}

// The blocks that are sent and granted.
std::vector<BlockId> FourBlocks() {
  return {BlockId(3), BlockId(1), BlockId(7), BlockId(8)};
}

// Records the ends; grants every offer.
class Recorder final : public KvSenderListener, public KvReceiverListener {
 public:
  void OnGranted(SessionId id, Epoch, uint32_t) override {
    logs.Change(id, [](SessionLog& log) { ++log.grants; });
  }
  void OnRefused(SessionId id, Epoch, const Status&) override {
    logs.Change(id, [](SessionLog& log) { ++log.refusals; });
  }
  void OnFinished(SessionId id, Epoch, const Status& status, const TransferStats&) override {
    End(id, status);
  }
  void OnOffer(const WorkerId&, SessionId id, Epoch epoch, const Offer&) override {
    receiver->Grant(id, epoch, 0, FourBlocks());
    logs.Change(id, [](SessionLog& log) { ++log.offers; });
  }
  void OnWithdrawn(SessionId id, Epoch, const Status& status) override { End(id, status); }
  void OnCommitted(SessionId id, Epoch, const std::string&, const TransferStats&) override {
    End(id, OkStatus());
  }
  void OnReleased(SessionId id, Epoch, const Status& status) override { End(id, status); }

  SessionLogs logs;
  KvReceiver* receiver = nullptr;

 private:
  void End(SessionId id, const Status& status) {
    logs.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.status = status;
    });
  }
};

// A sender that offers one prompt, sends half of it, and waits for `meanwhile`.
void RunSender(const std::string& transport,
               UniqueFd socket,
               const std::function<void(Recorder&)>& meanwhile) {
  HostBuffer arena(ArenaBytes());
  Recorder recorder;
  const WorkerId peer("decode");
  auto sender = *KvSender::Create(MakeOptions(transport, "prefill", arena), recorder);
  SocketControl control(std::move(socket));
  (void)control.Send({SessionId(), Epoch(), 0, sender->hello()});
  const Envelope hello = *control.Receive();
  if (!sender->AddPeer(peer, &control, std::get<Hello>(hello.message)).ok()) ::abort();
  control.Start([&](Envelope message) { (void)sender->OnMessage(peer, std::move(message)); },
                [&] { sender->RemovePeer(peer); });
  sender->Offer({kSession, Epoch(1), peer, 16, {}, std::chrono::seconds(30)});
  if (!recorder.logs.Wait(kSession, [](const auto& log) { return log.grants == 1; })) ::abort();
  const std::vector<BlockId> blocks = FourBlocks();
  sender->ChunkReady(kSession, Epoch(1), 0, std::span(blocks).first(2));
  meanwhile(recorder);
  sender->RemovePeer(peer);
}

void RunReceiver(const std::string& transport,
                 UniqueFd socket,
                 const std::function<void(Recorder&)>& meanwhile) {
  HostBuffer arena(ArenaBytes());
  Recorder recorder;
  const WorkerId peer("prefill");
  auto receiver = *KvReceiver::Create(MakeOptions(transport, "decode", arena), recorder);
  recorder.receiver = receiver.get();
  SocketControl control(std::move(socket));
  const Envelope hello = *control.Receive();
  (void)control.Send({SessionId(), Epoch(), 0, receiver->hello()});
  if (!receiver->AddPeer(peer, &control, std::get<Hello>(hello.message)).ok()) ::abort();
  control.Start([&](Envelope message) { (void)receiver->OnMessage(peer, std::move(message)); },
                [&] { receiver->RemovePeer(peer); });
  if (!recorder.logs.Wait(kSession, [](const auto& log) { return log.offers == 1; })) ::abort();
  meanwhile(recorder);
  receiver->RemovePeer(peer);
}

struct Fault {
  std::string transport;
  int signal = SIGKILL;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.transport << (fault.signal == SIGKILL ? "Killed" : "Stopped");
}

// One of the two is another process, which dies or stops in the middle of a hand-off. The survivor
// gets its blocks back.
class ProcessFaultTest : public testing::TestWithParam<Fault> {
 protected:
  using Side = void (*)(const std::string&, UniqueFd, const std::function<void(Recorder&)>&);

  void ExpectRelease(Side victim, Side survivor) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    UniqueFd ours(fds[0]);
    UniqueFd theirs(fds[1]);
    const pid_t child = ::fork();
    if (child == 0) {
      ours.Reset();
      victim(GetParam().transport, std::move(theirs), [](Recorder&) {
        while (true) ::pause();
      });
      ::_exit(0);
    }
    theirs.Reset();
    survivor(GetParam().transport, std::move(ours), [&](Recorder& recorder) {
      ::kill(child, GetParam().signal);
      EXPECT_TRUE(recorder.logs.WaitEnd(kSession));
      EXPECT_EQ(recorder.logs.Get(kSession).status.code(), StatusCode::kUnavailable)
          << recorder.logs.Get(kSession).status;
    });
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
};

TEST_P(ProcessFaultTest, TheSenderOutlivesItsReceiver) {
  ExpectRelease(RunReceiver, RunSender);
}

TEST_P(ProcessFaultTest, TheReceiverOutlivesItsSender) {
  ExpectRelease(RunSender, RunReceiver);
}

INSTANTIATE_TEST_SUITE_P(Faults,
                         ProcessFaultTest,
                         testing::Values(Fault{"shm", SIGKILL},
                                         Fault{"tcp", SIGKILL},
                                         Fault{"shm", SIGSTOP},
                                         Fault{"tcp", SIGSTOP}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace baton

#include "tests/conformance/transfer_peer.h"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/socket_control.h"

namespace baton {
namespace {

constexpr uint32_t kArenaBlocks = 16;
const KvLayout kLayout = DenseLayout(
    {.layers = 2, .kv_heads = 2, .head_dim = 64, .block_tokens = 4, .dtype = DType::kBF16});

KvTransferOptions MakeOptions(const PeerSetup& setup,
                              const char* name,
                              PeerDevice& device,
                              const TestMemory& arena) {
  KvTransferOptions options;
  options.worker = WorkerId(name);
  options.layout = kLayout;
  options.shards = {{WholeModel(kLayout), &arena.buffer(), kArenaBlocks}};
  options.dma = device.dma();
  options.transport.require_transport = setup.transport;
  options.transport.listen_address = "127.0.0.1:0";
  options.times = HandoffPair::Impatient();
  options.transport.fence_timeout = options.times.fence;
  return options;
}

size_t ArenaBytes() {
  return ShardBlockBytes(kLayout, WholeModel(kLayout)) * kArenaBlocks;
}

// The blocks that are sent and granted.
std::vector<BlockId> FourBlocks() {
  return {BlockId(3), BlockId(1), BlockId(7), BlockId(8)};
}

// An exception ends only this test, so that the other tests still report results. In kv_peer it
// ends the process.
void Require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void Require(const Status& status) {
  Require(status.ok(), std::string(Message(status)));
}

Hello ReceiveHello(SocketControl& control, const char* other) {
  const StatusOr<Envelope> first = control.Receive();
  Require(first.ok(), fmt::format("the {} of the other process ended before its HELLO", other));
  return std::get<Hello>(first->message);
}

}  // namespace

bool WaitForBytes(const PeerRecorder& recorder) {
  const SteadyClock clock;
  const Time until = clock.Now() + std::chrono::seconds(10);
  while (recorder.stats().bytes == 0 && clock.Now() < until) std::this_thread::yield();
  return recorder.stats().bytes > 0;
}

PeerDevice::PeerDevice(const std::string& name) {
  if (name == "fake") {
    fake_ = std::make_unique<FakeGpu>();
    return;
  }
  BackendOptions options;
  options.device = name;
  auto backend = OpenBackend(options);
  Require(backend.status());
  backend_ = *std::move(backend);
}

void PeerRecorder::OnRefused(SessionId id, Epoch, const Status&) {
  logs.Change(id, [](SessionLog& log) { ++log.refusals; });
}

void PeerRecorder::OnFinished(SessionId id, Epoch, const Status& status, const TransferStats&) {
  End(id, status);
}

void PeerRecorder::OnOffer(const WorkerId&, SessionId id, Epoch epoch, const Offer&) {
  receiver->Grant(id, epoch, 0, FourBlocks());
  logs.Change(id, [](SessionLog& log) { ++log.offers; });
}

void PeerRecorder::OnWithdrawn(SessionId id, Epoch, const Status& status) {
  End(id, status);
}

void PeerRecorder::OnCommitted(SessionId id, Epoch, const std::string&, const TransferStats&) {
  End(id, OkStatus());
}

void PeerRecorder::OnReleased(SessionId id, Epoch, const Status& status) {
  End(id, status);
}

void PeerRecorder::End(SessionId id, const Status& status) {
  logs.Change(id, [&](SessionLog& log) {
    ++log.ends;
    log.status = status;
  });
}

void RunPeerSender(const PeerSetup& setup,
                   UniqueFd socket,
                   const std::function<void(PeerRecorder&)>& meanwhile) {
  PeerDevice device(setup.device);
  TestMemory arena(device.device(), ArenaBytes());
  PeerRecorder recorder;
  const WorkerId peer("decode");
  auto sender = KvSender::Create(MakeOptions(setup, "prefill", device, arena), recorder);
  Require(sender.status());
  recorder.stats = [&] { return (*sender)->Stats(); };
  SocketControl control(std::move(socket));
  (void)control.Send({SessionId(), Epoch(), (*sender)->hello()});
  Require((*sender)->AddPeer(peer, &control, ReceiveHello(control, "receiver")));
  control.Start(
      [&](const Envelope& message) {
        (void)(*sender)->OnMessage(peer, message);
        NoteGrant(message, recorder.logs);
      },
      [&] { (*sender)->RemovePeer(peer); });
  (*sender)->Offer({kPeerSession, Epoch(1), peer, 16, std::chrono::seconds(30)});
  Require(recorder.logs.Wait(kPeerSession, [](const auto& log) { return log.granted; }),
          "no grant came");
  const std::vector<BlockId> blocks = FourBlocks();
  (*sender)->ChunkReady(kPeerSession, Epoch(1), 0, std::span(blocks).first(1));
  if (setup.hold_copies && device.fake() != nullptr) {
    WaitForBytes(recorder);
    device.fake()->Hold();
  }
  (*sender)->ChunkReady(kPeerSession, Epoch(1), 1, std::span(blocks).subspan(1, 1));
  meanwhile(recorder);
  (*sender)->RemovePeer(peer);
}

void RunPeerReceiver(const PeerSetup& setup,
                     UniqueFd socket,
                     const std::function<void(PeerRecorder&)>& meanwhile) {
  PeerDevice device(setup.device);
  TestMemory arena(device.device(), ArenaBytes());
  PeerRecorder recorder;
  const WorkerId peer("prefill");
  auto receiver = KvReceiver::Create(MakeOptions(setup, "decode", device, arena), recorder);
  Require(receiver.status());
  recorder.receiver = receiver->get();
  recorder.stats = [&] { return (*receiver)->Stats(); };
  SocketControl control(std::move(socket));
  const Hello hello = ReceiveHello(control, "sender");
  (void)control.Send({SessionId(), Epoch(), (*receiver)->hello()});
  Require((*receiver)->AddPeer(peer, &control, hello));
  control.Start([&](Envelope message) { (void)(*receiver)->OnMessage(peer, std::move(message)); },
                [&] { (*receiver)->RemovePeer(peer); });
  Require(recorder.logs.Wait(kPeerSession, [](const auto& log) { return log.offers == 1; }),
          "no offer came");
  meanwhile(recorder);
  (*receiver)->RemovePeer(peer);
}

}  // namespace baton

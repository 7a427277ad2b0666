#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/fake_gpu.h"

namespace baton {
namespace {

const KvLayout kLayout =
    DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4});
constexpr uint32_t kBlocks = 8;

class Nothing final : public KvSenderListener, public KvReceiverListener {
 public:
  void OnRefused(SessionId, Epoch, const Status&) override {}
  void OnFinished(SessionId, Epoch, const Status&, const TransferStats&) override {}
  void OnOffer(const WorkerId&, SessionId, Epoch, const Offer&) override {}
  void OnWithdrawn(SessionId, Epoch, const Status&) override {}
  void OnCommitted(SessionId, Epoch, const std::string&, const TransferStats&) override {}
  void OnReleased(SessionId, Epoch, const Status&) override {}
};

class NoStream final : public ControlStream {
 public:
  Status Send(const Envelope&) override { return OkStatus(); }
};

// Which transport a sender and a receiver choose.
class TransportChoiceTest : public testing::Test {
 protected:
  KvTransferOptions Options(const char* name, const TestMemory& arena, Dma* dma) {
    KvTransferOptions options;
    options.worker = WorkerId(name);
    options.layout = kLayout;
    options.shards = {{WholeModel(kLayout), &arena.buffer(), kBlocks}};
    options.dma = dma;
    options.transport.require_transport = required_;
    options.transport.listen_address = "127.0.0.1:0";
    options.log = [this](auto line) { log_ += line; };
    options.log_info = options.log;
    return options;
  }
  // The transport in use, or the error if there is none.
  std::string Choose(Device& device, Dma* dma) {
    const size_t bytes = ShardBlockBytes(kLayout, WholeModel(kLayout)) * kBlocks;
    TestMemory from(device, bytes);
    TestMemory to(device, bytes);
    auto receiver = KvReceiver::Create(Options("decode", to, dma), nothing_);
    if (!receiver.ok()) return std::string(Message(receiver.status()));
    auto sender = KvSender::Create(Options("prefill", from, dma), nothing_);
    if (!sender.ok()) return std::string(Message(sender.status()));
    const WorkerId peer("decode");
    const Status added = (*sender)->AddPeer(peer, &stream_, (*receiver)->hello());
    if (!added.ok()) return std::string(Message(added));
    const SteadyClock clock;
    const Time until = clock.Now() + std::chrono::seconds(10);
    while ((*sender)->Stats().by_peer.empty() && clock.Now() < until) std::this_thread::yield();
    const auto peers = (*sender)->Stats().by_peer;
    (*sender)->RemovePeer(peer);
    if (!peers.contains(peer)) return "nothing";
    not_taken_ = peers.at(peer).not_taken;
    return peers.at(peer).transport;
  }

  CpuDevice cpu_;
  FakeGpu gpu_;
  Nothing nothing_;
  NoStream stream_;
  std::string required_;
  std::string log_;
  std::string not_taken_;  // PeerTransferStats::not_taken
};

TEST_F(TransportChoiceTest, GpusOfOneHostUseCudaIpc) {
  EXPECT_EQ(Choose(gpu_, &gpu_), "cuda_ipc");
  EXPECT_NE(log_.find("shm moves host memory only"), std::string::npos) << log_;
}

TEST_F(TransportChoiceTest, GpusThatDoNotReachEachOtherUseTcp) {
  gpu_.Isolate();
  EXPECT_EQ(Choose(gpu_, &gpu_), "tcp");
  EXPECT_NE(not_taken_.find("shm: "), std::string::npos) << not_taken_;
  EXPECT_NE(not_taken_.find("cuda_ipc: no way to the peer's GPU"), std::string::npos) << not_taken_;
  EXPECT_NE(log_.find("KV goes over tcp; not taken: " + not_taken_), std::string::npos) << log_;
}

TEST_F(TransportChoiceTest, WhatIsRequiredIsUsedOrFails) {
  required_ = "cuda_ipc";
  EXPECT_EQ(Choose(gpu_, &gpu_), "cuda_ipc");
  EXPECT_NE(Choose(cpu_, nullptr).find("there is none"), std::string::npos);
  gpu_.Isolate();
  EXPECT_NE(Choose(gpu_, &gpu_).find("no way to the peer's GPU"), std::string::npos);
  required_ = "shm";
  EXPECT_NE(Choose(gpu_, &gpu_).find("host memory only"), std::string::npos);
}

TEST_F(TransportChoiceTest, HostMemoryUsesShm) {
  EXPECT_EQ(Choose(cpu_, nullptr), "shm");
  EXPECT_NE(not_taken_.find("cuda_ipc: "), std::string::npos) << not_taken_;
}

TEST_F(TransportChoiceTest, TheFirstChoiceNeedsNoReason) {
  EXPECT_EQ(Choose(gpu_, &gpu_), "cuda_ipc");
  // Transports that are preferred less are not missed.
  EXPECT_EQ(not_taken_, "");
}

// The devices' checksums detect bytes that change during the transfer.
TEST(GpuChecksumTest, DamageIsFoundAndRepairedOnce) {
  FakeGpu gpu;
  HandoffPair pair(HandoffPair::Options::OverCudaIpc(gpu, gpu));
  gpu.Corrupt(true);
  const std::vector<BlockId> source = {BlockId(4), BlockId(9)};
  pair.filter = [&](const Envelope& envelope, bool) {
    if (std::holds_alternative<Resend>(envelope.message)) gpu.Corrupt(false);
    return true;
  };
  pair.Offer(SessionId(1), 8);
  pair.sender().ChunkReady(SessionId(1), Epoch(1), 0, source);
  pair.sender().Seal(SessionId(1), Epoch(1), "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  EXPECT_GT(pair.received().Get(SessionId(1)).stats.resent_blocks, 0u);
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
}

}  // namespace
}  // namespace baton

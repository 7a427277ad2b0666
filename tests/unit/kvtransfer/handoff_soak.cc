#include "tests/unit/kvtransfer/handoff_soak.h"

#include <malloc.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/layout_order.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

constexpr uint32_t kArenaBlocks = 160;
constexpr size_t kTokenBlocks = 4;
constexpr uint32_t kPromptTokens = kTokenBlocks * 4;
constexpr size_t kAtATime = 12;
constexpr double kAborted = 0.3;
const WorkerId kSenderName("prefill");
const WorkerId kReceiverName("decode");

// The free blocks of an arena. A block that is given back twice, or was not taken, is a fault.
class BlockLeases final {
 public:
  BlockLeases() {
    for (uint32_t block = 0; block < kArenaBlocks; ++block) free_.insert(BlockId(block));
  }
  // Empty when too few blocks are free.
  std::vector<BlockId> Take(SessionId session, size_t count) {
    if (free_.size() < count) return {};
    std::vector<BlockId>& taken = taken_[session];
    for (size_t i = 0; i < count; ++i) taken.push_back(free_.extract(free_.begin()).value());
    return taken;
  }
  void GiveBack(SessionId session) {
    const auto node = taken_.extract(session);
    if (node.empty()) return;
    for (const BlockId block : node.mapped()) {
      if (!free_.insert(block).second)
        ADD_FAILURE() << "block " << block.value() << " is free already";
    }
  }
  bool complete() const { return taken_.empty() && free_.size() == kArenaBlocks; }

 private:
  std::set<BlockId> free_;
  std::map<SessionId, std::vector<BlockId>> taken_;
};

// Two cache groups; the window owes the last 2 blocks. Or a layer with KV and three with states.
KvLayout LayoutOf(const SoakTransport& transport) {
  if (transport.states) return HybridLayout(4, 4, 8, 4);
  return DenseLayout({.layers = 2,
                      .kv_heads = 4,
                      .head_dim = 8,
                      .block_tokens = 4,
                      .dtype = DType::kF16,
                      .windows = {0, 8}});
}

// A sender and a receiver, and the workers that own their arenas.
class Soak final : private KvSenderListener, private KvReceiverListener {
 public:
  explicit Soak(const SoakTransport& transport)
      : layout_(LayoutOf(transport)),
        from_(cpu_, ShardBlockBytes(layout_, WholeModel(layout_)) * kArenaBlocks),
        to_(cpu_, from_.size()),
        to_sender_([this](const Envelope& envelope) {
          return sender_->OnMessage(kReceiverName, envelope);
        }),
        to_receiver_([this](const Envelope& envelope) {
          return receiver_->OnMessage(kSenderName, envelope);
        }) {
    from_.Put(0, Pattern(from_.size(), 1));
    sender_ = *KvSender::Create(Options(transport, kSenderName, from_), *this);
    receiver_ = *KvReceiver::Create(Options(transport, kReceiverName, to_), *this);
    EXPECT_TRUE(receiver_->AddPeer(kSenderName, &to_sender_, sender_->hello()).ok());
    EXPECT_TRUE(sender_->AddPeer(kReceiverName, &to_receiver_, receiver_->hello()).ok());
  }
  ~Soak() override {
    sender_->RemovePeer(kReceiverName);
    receiver_->RemovePeer(kSenderName);
  }

  // Runs `count` hand-offs and waits for their ends.
  void Run(int count) {
    for (int i = 0; i < count; ++i) Start(SessionId(next_session_++));
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(
        lock,
        kPatience,
        [&] { return sources_.complete() && targets_.complete() && under_way_ == 0; }))
        << under_way_ << " sessions have not ended";
  }

  void ExpectNothingLeft() const {
    // The statistics are published by the threads when they become idle.
    const auto idle = [](const KvTransferStats& stats) {
      return stats.offered + stats.streaming + stats.draining + stats.quarantined == 0;
    };
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!idle(sender_->Stats()) || !idle(receiver_->Stats())) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "a session is left over";
    }
    EXPECT_EQ(receiver_->Stats().checksum_errors, 0u);
  }
  uint64_t committed() const { return receiver_->Stats().finished; }
  uint64_t aborted() const { return receiver_->Stats().cancelled; }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  class Stream final : public ControlStream {
   public:
    explicit Stream(std::function<Status(const Envelope&)> send) : send_(std::move(send)) {}
    Status Send(const Envelope& envelope) override { return send_(envelope); }

   private:
    const std::function<Status(const Envelope&)> send_;
  };

  KvTransferOptions Options(const SoakTransport& transport,
                            const WorkerId& worker,
                            const TestMemory& arena) const {
    KvTransferOptions options;
    options.worker = worker;
    options.boot = BootId(1);
    options.layout = layout_;
    options.shards.push_back({WholeModel(layout_), &arena.buffer(), kArenaBlocks});
    options.transport.require_transport = transport.name;
    options.transport.listen_address = "127.0.0.1:0";
    options.op_bytes = 1000;
    options.make_transport = transport.make;
    return options;
  }

  size_t prompt_blocks() const {
    return kTokenBlocks * static_cast<size_t>(layout_.block_groups());
  }
  size_t state_blocks() const {
    const std::vector<KvShard> shards = {WholeModel(layout_)};
    return static_cast<size_t>(StateBlocks(layout_, shards));
  }

  void Start(SessionId id) {
    std::vector<BlockId> blocks;
    bool aborts = false;
    bool at_sender = false;
    uint64_t yields = 0;
    {
      std::unique_lock lock(mutex_);
      ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return under_way_ < kAtATime; }));
      blocks = sources_.Take(id, prompt_blocks() + state_blocks());
      ASSERT_FALSE(blocks.empty());
      ++under_way_;
      aborts = std::uniform_real_distribution<double>(0, 1)(random_) < kAborted;
      at_sender = random_() % 2 == 0;
      yields = random_() % 100;
    }
    sender_->Offer({id, Epoch(1), kReceiverName, kPromptTokens, std::chrono::seconds(30)});
    const std::span<const BlockId> all(blocks);
    const size_t first = prompt_blocks() / kTokenBlocks;
    sender_->ChunkReady(id, Epoch(1), 0, all.first(first));
    sender_->ChunkReady(
        id, Epoch(1), 1, all.subspan(first, prompt_blocks() - first), all.subspan(prompt_blocks()));
    if (!aborts) return sender_->Seal(id, Epoch(1), "first token");
    for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
    const Status reason(StatusCode::kCancelled, "the user left");
    if (!at_sender) receiver_->Abort(id, Epoch(1), reason);
    sender_->Seal(id, Epoch(1), "first token");
    if (at_sender) sender_->Abort(id, Epoch(1), reason);
  }

  // The prefill worker.
  void OnRefused(SessionId id, Epoch epoch, const Status& status) override {
    sender_->Abort(id, epoch, status);
  }
  void OnFinished(SessionId id, Epoch, const Status&, const TransferStats&) override {
    std::lock_guard lock(mutex_);
    sources_.GiveBack(id);
    --under_way_;
    changed_.notify_all();
  }
  // The decode worker.
  void OnOffer(const WorkerId&, SessionId id, Epoch epoch, const Offer&) override {
    std::vector<BlockId> blocks;
    {
      std::lock_guard lock(mutex_);
      blocks = targets_.Take(id, prompt_blocks() + state_blocks());
    }
    if (blocks.empty()) {
      return receiver_->Refuse(id, epoch, Status(StatusCode::kResourceExhausted, "no blocks"));
    }
    const std::span<const BlockId> all(blocks);
    receiver_->Grant(id, epoch, 0, all.first(prompt_blocks()), all.subspan(prompt_blocks()));
  }
  void OnWithdrawn(SessionId, Epoch, const Status&) override {}
  void OnCommitted(SessionId id, Epoch, const std::string&, const TransferStats&) override {
    Release(id);
  }
  void OnReleased(SessionId id, Epoch, const Status&) override { Release(id); }
  void Release(SessionId id) {
    std::lock_guard lock(mutex_);
    targets_.GiveBack(id);
    changed_.notify_all();
  }

  CpuDevice cpu_;
  const KvLayout layout_;
  TestMemory from_;
  TestMemory to_;
  Stream to_sender_;
  Stream to_receiver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_{1};
  uint64_t next_session_ = 1;
  size_t under_way_ = 0;
  BlockLeases sources_;
  BlockLeases targets_;
  std::unique_ptr<KvSender> sender_;
  std::unique_ptr<KvReceiver> receiver_;
};

size_t OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SoakTest);

void SoakTest::Run(int handoffs) {
  const auto objects = [] {
    return GetParam().objects ? GetParam().objects() : std::vector<size_t>();
  };
  const std::vector<size_t> objects_before = objects();
  {
    Soak soak(GetParam());
    // Both ends remember the latest 1024 sessions: from then on the memory must not grow.
    ASSERT_NO_FATAL_FAILURE(soak.Run(1500));
    const size_t files = OpenFiles();
    const std::vector<size_t> objects_between = objects();
    const size_t bytes = ::mallinfo2().uordblks;
    ASSERT_NO_FATAL_FAILURE(soak.Run(handoffs));
    soak.ExpectNothingLeft();
    const size_t bytes_after = ::mallinfo2().uordblks;
    EXPECT_EQ(OpenFiles(), files);
    EXPECT_EQ(objects(), objects_between);
    EXPECT_LT(bytes_after, bytes + (size_t{512} << 10)) << "memory grows from hand-off to hand-off";
    EXPECT_GT(soak.committed(), static_cast<uint64_t>(handoffs) / 3);
    EXPECT_GT(soak.aborted(), static_cast<uint64_t>(handoffs) / 50);
    RecordProperty("committed", std::to_string(soak.committed()));
    fmt::print("{}: {} committed, {} cancelled, {} B of heap before, {} after\n",
               GetParam().name,
               soak.committed(),
               soak.aborted(),
               bytes,
               bytes_after);
  }
  EXPECT_EQ(objects(), objects_before);
}

TEST_P(SoakTest, TwoThousandHandoffsLeaveNothing) {
  Run(2000);
}

// With the label `soak`, not by default.
TEST_P(SoakTest, DISABLED_AHundredThousandHandoffsLeaveNothing) {
  Run(100'000);
}

}  // namespace baton

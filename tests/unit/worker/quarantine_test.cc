#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/conformance/memory_transport.h"
#include "tests/fakes/worker_pair.h"

// Quarantine: the blocks of a failed hand-off for which no fence could be proven stay held, and are
// reported to operators.
namespace baton {
namespace {

using ::testing::HasSubstr;

// While `up`, no transport can abort a write, fence a channel or close a window.
struct Barrier {
  std::atomic<bool> up{true};
  std::atomic<int> writes{0};  // posted writes
};

class UnfencedChannel final : public Channel {
 public:
  UnfencedChannel(std::unique_ptr<Channel> inner, Barrier& barrier)
      : inner_(std::move(inner)), barrier_(barrier) {}
  StatusOr<OpId> PostWrite(const WriteOp& op) override {
    ++barrier_.writes;
    return inner_->PostWrite(op);
  }
  void RequestAbort(OpId op) override { aborts_.insert(op); }
  void Release(uint64_t window_key) override { inner_->Release(window_key); }
  void Fence() override { fence_ = true; }
  size_t Poll(Time now, std::span<WriteEvent> events) override {
    if (!barrier_.up) {
      for (const OpId op : std::exchange(aborts_, {})) inner_->RequestAbort(op);
      if (std::exchange(fence_, false)) inner_->Fence();
    }
    return inner_->Poll(now, events);
  }
  Status status() const override { return inner_->status(); }

 private:
  const std::unique_ptr<Channel> inner_;
  Barrier& barrier_;
  std::set<OpId> aborts_;
  bool fence_ = false;
};

class UnfencedTransport final : public Transport {
 public:
  UnfencedTransport(std::unique_ptr<Transport> inner, Barrier& barrier)
      : inner_(std::move(inner)), barrier_(barrier) {}
  std::string_view name() const override { return inner_->name(); }
  TransportCaps caps() const override { return inner_->caps(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override {
    return inner_->Register(buffer);
  }
  StatusOr<std::string> Listen() override { return inner_->Listen(); }
  Status OpenWindow(WriteWindow window) override { return inner_->OpenWindow(std::move(window)); }
  void CloseWindow(uint64_t window_key) override { closes_.push_back(window_key); }
  size_t Poll(Time now, std::span<Arrival> arrivals) override {
    if (!barrier_.up) {
      for (const uint64_t key : std::exchange(closes_, {})) inner_->CloseWindow(key);
    }
    return inner_->Poll(now, arrivals);
  }
  Status Reaches(std::string_view descriptor) const override { return inner_->Reaches(descriptor); }
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                           inner_->Connect(local, descriptor, peer_region));
    return std::make_unique<UnfencedChannel>(std::move(channel), barrier_);
  }

 private:
  const std::unique_ptr<Transport> inner_;
  Barrier& barrier_;
  std::vector<uint64_t> closes_;
};

class QuarantineTest : public WorkerPair {
 protected:
  NodeOptions Unfenced() {
    NodeOptions options = Waits(kLongWait);
    options.transport = "memory";
    options.make_transport = [this](std::string_view) -> StatusOr<std::unique_ptr<Transport>> {
      return std::make_unique<UnfencedTransport>(fabric_.MakeTransport(), barrier_);
    };
    options.times.drain = options.times.fence = kSoon;
    return options;
  }
  // Starts a hand-off of 6 blocks whose writes never land, then cancels it on both sides.
  void Quarantine() {
    const Request request = Prompt(1, 90);
    SendDecode(request, 1);
    SendPrefill(request, 1);
    const SteadyClock clock;
    const Time deadline = clock.Now() + std::chrono::seconds(60);
    while (barrier_.writes == 0 && clock.Now() < deadline) std::this_thread::yield();
    ASSERT_GT(barrier_.writes, 0);
    Cancel("d", request);
    Cancel("p", request);
    for (const char* worker : {"p", "d"}) AwaitQuarantined(worker, true);
  }
  void AwaitQuarantined(const std::string& worker, bool some) {
    router_.AwaitHeartbeat(worker, [some](const worker::v1::Heartbeat& beat) {
      return beat.blocks_total() > 0 && (beat.blocks_quarantined() > 0) == some;
    });
  }

  Barrier barrier_;
  MemoryFabric fabric_{{.never = 1}};  // no write lands
};

TEST_F(QuarantineTest, IsShownByBothWorkersUntilItIsOver) {
  Start(Unfenced(), Unfenced());
  for (const auto* node : {&p_, &d_}) {
    EXPECT_THAT((*node)->metrics().Serialize(), HasSubstr("baton_kv_quarantined_blocks 0\n"));
  }
  Quarantine();
  for (const auto& [worker, node] : {std::pair("p", p_.get()), std::pair("d", d_.get())}) {
    EXPECT_EQ(router_.LastHeartbeat(worker).blocks_quarantined(), 6) << worker;
    EXPECT_EQ(router_.LastHeartbeat(worker).blocks_leaked(), 0) << worker;
    const worker::v1::PeerTransport peer = router_.LastHeartbeat(worker).peers(0);
    EXPECT_EQ(peer.quarantined_blocks(), 6u) << worker;
    EXPECT_EQ(peer.open(), 1u) << worker;
    EXPECT_GT(peer.oldest_ms(), 0) << worker;
    EXPECT_EQ(peer.fences(), std::string_view(worker) == "p" ? 1u : 0u) << worker;
    EXPECT_THAT(node->metrics().Serialize(), HasSubstr("baton_kv_quarantined_blocks 6\n"));
  }
  barrier_.up = false;  // now a fence can be proven
  for (const char* worker : {"p", "d"}) AwaitQuarantined(worker, false);
  for (const auto* node : {&p_, &d_}) {
    EXPECT_THAT((*node)->metrics().Serialize(), HasSubstr("baton_kv_quarantined_blocks 0\n"));
  }
}

TEST_F(QuarantineTest, DoesNotKeepADrainedWorker) {
  Start(Unfenced(), Unfenced());
  Quarantine();
  for (const auto* node : {&p_, &d_}) {
    EXPECT_TRUE((*node)->worker().Drain(std::chrono::seconds(60)));
  }
  barrier_.up = false;
}

}  // namespace
}  // namespace baton

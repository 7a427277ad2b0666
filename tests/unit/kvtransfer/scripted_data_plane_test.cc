#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

constexpr auto kLimit = std::chrono::seconds(30);
constexpr uint32_t kBlocks = 8;
const KvLayout kLayout =
    DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4});
const WorkerId kPeer("prefill");

// What the test and the thread of a receiver share.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  Status open;                                // the result of OpenWindows
  std::vector<Status> closed;                 // results of the close that Poll has not reported yet
  std::optional<SessionKey> opened, closing;  // the arguments of OpenWindows and CloseWindows
  std::optional<Status> released;             // of OnReleased

  // Waits until `done()` holds.
  template <class Done>
  bool Await(const Done& done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLimit, done);
  }
};

// A data plane that does what the test says.
class ScriptedDataPlane final : public DataPlane {
 public:
  explicit ScriptedDataPlane(Script& script) : script_(script) {}

  const std::vector<KvShardInfo>& shards() const override { return shards_; }
  std::vector<int> wait_fds() const override { return {}; }
  StatusOr<std::unique_ptr<PeerWriter>> NewWriter(const Hello&) override {
    return MakeStatus(StatusCode::kFailedPrecondition, "rank 1 cannot reach the peer");
  }
  Status OpenWindows(const SessionKey& session, WindowGrant) override {
    const std::lock_guard lock(script_.mutex);
    script_.opened = session;
    script_.changed.notify_all();
    return script_.open;
  }
  void SetReceiveRate(uint64_t) override {}
  void CloseWindows(const SessionKey& session) override {
    const std::lock_guard lock(script_.mutex);
    script_.closing = session;
    script_.changed.notify_all();
  }
  void Poll(Time, WindowListener& listener) override {
    std::vector<Status> closed;
    SessionKey session;
    {
      const std::lock_guard lock(script_.mutex);
      if (!script_.closing) return;
      session = *script_.closing;
      closed = std::exchange(script_.closed, {});
    }
    for (const Status& status : closed) listener.OnWindowsClosed(session, status);
  }

 private:
  Script& script_;
  const std::vector<KvShardInfo> shards_ = {{WholeModel(kLayout), kBlocks, {}}};
};

class Listener final : public KvSenderListener, public KvReceiverListener {
 public:
  explicit Listener(Script& script) : script_(script) {}
  void OnRefused(SessionId, Epoch, const Status&) override {}
  void OnFinished(SessionId, Epoch, const Status&, const TransferStats&) override {}
  void OnOffer(const WorkerId&, SessionId session, Epoch epoch, const Offer&) override {
    const std::vector<BlockId> blocks = {BlockId(1), BlockId(2)};
    receiver->Grant(session, epoch, 0, blocks);
  }
  void OnWithdrawn(SessionId, Epoch, const Status&) override {}
  void OnCommitted(SessionId, Epoch, const std::string&, const TransferStats&) override {}
  void OnReleased(SessionId, Epoch, const Status& status) override {
    const std::lock_guard lock(script_.mutex);
    script_.released = status;
    script_.changed.notify_all();
  }

  KvReceiver* receiver = nullptr;

 private:
  Script& script_;
};

class NoStream final : public ControlStream {
 public:
  Status Send(const Envelope&) override { return OkStatus(); }
};

class ScriptedDataPlaneTest : public testing::Test {
 protected:
  KvTransferOptions Options() {
    KvTransferOptions options;
    options.worker = WorkerId("decode");
    options.layout = kLayout;
    options.shards = {{WholeModel(kLayout), &arena_.buffer(), kBlocks}};
    options.make_data_plane = [this](const KvTransferOptions&, bool listen) {
      listens_ = listen;
      return StatusOr<std::unique_ptr<DataPlane>>(std::make_unique<ScriptedDataPlane>(script_));
    };
    return options;
  }
  Hello PeersHello() const {
    Hello hello;
    hello.worker = kPeer;
    hello.layout = kLayout;
    hello.shards = {{WholeModel(kLayout), kBlocks, {}}};
    return hello;
  }

  CpuDevice device_;
  TestMemory arena_{device_, ShardBlockBytes(kLayout, WholeModel(kLayout)) * kBlocks};
  Script script_;
  Listener listener_{script_};
  NoStream stream_;
  bool listens_ = false;
};

// The second rank of a group refuses a window. The blocks are released only when every rank has
// closed its windows.
TEST_F(ScriptedDataPlaneTest, BlocksWaitUntilTheDataPlaneHasClosedItsWindows) {
  script_.open = MakeStatus(StatusCode::kUnavailable, "rank 1 is gone");
  auto receiver = KvReceiver::Create(Options(), listener_);
  ASSERT_TRUE(receiver.ok()) << receiver.status();
  EXPECT_TRUE(listens_);
  listener_.receiver = receiver->get();
  ASSERT_TRUE((*receiver)->AddPeer(kPeer, &stream_, PeersHello()).ok());
  const Offer offer{.total_tokens = 8, .timeout = kLimit};
  ASSERT_TRUE((*receiver)->OnMessage(kPeer, {SessionId(1), Epoch(1), offer}).ok());
  ASSERT_TRUE(script_.Await([&] { return script_.closing.has_value(); }));
  {
    const std::lock_guard lock(script_.mutex);
    EXPECT_EQ(script_.opened, (SessionKey{SessionId(1), Epoch(1)}));
    EXPECT_EQ(script_.closing, script_.opened);
    EXPECT_FALSE(script_.released.has_value()) << "its windows may be open";
    script_.closed = {OkStatus()};
  }
  ASSERT_TRUE(script_.Await([&] { return script_.released.has_value(); }));
  EXPECT_EQ(Message(*script_.released), "rank 1 is gone");
}

TEST_F(ScriptedDataPlaneTest, APeerThatTheDataPlaneCannotWriteToIsNotAdded) {
  auto sender = KvSender::Create(Options(), listener_);
  ASSERT_TRUE(sender.ok()) << sender.status();
  EXPECT_FALSE(listens_);
  const Status added = (*sender)->AddPeer(kPeer, &stream_, PeersHello());
  EXPECT_EQ(Message(added), "rank 1 cannot reach the peer");
}

TEST_F(ScriptedDataPlaneTest, WithoutADataPlaneThereIsNoReceiver) {
  KvTransferOptions options = Options();
  options.make_data_plane = [](const KvTransferOptions&, bool) {
    return StatusOr<std::unique_ptr<DataPlane>>(
        MakeStatus(StatusCode::kUnavailable, "a rank is missing"));
  };
  EXPECT_EQ(Message(KvReceiver::Create(std::move(options), listener_).status()),
            "a rank is missing");
}

}  // namespace
}  // namespace baton

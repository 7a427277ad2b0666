#include "tests/conformance/state_peer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/base/hash.h"

namespace baton {
namespace {

constexpr uint32_t kArenaBlocks = 64;
// The blocks of the prompt, and behind them those of its state.
constexpr uint32_t kTokenBlocks = 20;
constexpr uint32_t kBlocks = kTokenBlocks + 4;
// Blocks of 64 KiB: large enough that some of them are on their way for a while. The state fills
// four.
const KvLayout kLayout = DenseLayout(
    {.layers = 5,
     .kv_heads = 4,
     .head_dim = 128,
     .block_tokens = 8,
     .dtype = DType::kBF16,
     .state = {.layers = {2},
               .planes = {{.name = "memory", .heads = 4, .dim = 1 << 14, .dtype = DType::kF32}}}});
constexpr Epoch kEpoch(1);
constexpr uint64_t kSeed = 11;
constexpr std::byte kEmpty{0x77};
const WorkerId kPeer("peer");

size_t BlockBytes() {
  return ShardBlockBytes(kLayout, WholeModel(kLayout));
}

// Every other block, upwards at the sender and downwards at the receiver.
std::vector<BlockId> BlocksOf(bool is_sender) {
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(BlockId(is_sender ? 2 * i : kArenaBlocks - 1 - 2 * i));
  }
  return blocks;
}

std::string DeviceFor(std::string_view transport) {
  return transport == "cuda_ipc" || transport == "nccl" ? "fake" : "cpu";
}

template <class T>
T Must(StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(std::string(Message(value.status())));
  return *std::move(value);
}

}  // namespace

class StatePeer::Sending final : public KvSenderListener {
 public:
  explicit Sending(StatePeer& peer)
      : peer_(peer), sender_(Must(KvSender::Create(peer.MakeOptions(), *this))) {}
  void OnRefused(SessionId id, Epoch epoch, const Status& status) override {
    sender_->Abort(id, epoch, status);
  }
  void OnFinished(SessionId id, Epoch, const Status& status, const TransferStats&) override {
    peer_.logs_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.status = status;
      log.committed = status.ok();
    });
  }
  KvSender& sender() { return *sender_; }

 private:
  StatePeer& peer_;
  const std::unique_ptr<KvSender> sender_;
};

class StatePeer::Receiving final : public KvReceiverListener {
 public:
  explicit Receiving(StatePeer& peer)
      : peer_(peer), receiver_(Must(KvReceiver::Create(peer.MakeOptions(), *this))) {}
  void OnOffer(const WorkerId&, SessionId id, Epoch epoch, const baton::Offer&) override {
    if (peer_.setup_.course == HandoffCourse::kIsWithdrawn) return;
    if (peer_.setup_.course == HandoffCourse::kIsRefused) {
      receiver_->Refuse(id, epoch, MakeStatus(StatusCode::kResourceExhausted, "no blocks"));
      return End(id, MakeStatus(StatusCode::kResourceExhausted, "refused"), false);
    }
    const std::vector<BlockId> blocks = BlocksOf(/*is_sender=*/false);
    const std::span<const BlockId> all(blocks);
    receiver_->Grant(id, epoch, 0, all.first(kTokenBlocks), all.subspan(kTokenBlocks));
  }
  void OnWithdrawn(SessionId id, Epoch, const Status& status) override {
    peer_.logs_.Change(id, [](SessionLog& log) { log.withdrawn = true; });
    End(id, status, false);
  }
  void OnCommitted(SessionId id, Epoch, const std::string&, const TransferStats&) override {
    End(id, OkStatus(), true);
  }
  void OnReleased(SessionId id, Epoch, const Status& status) override {
    // The grant crossed the withdrawal.
    if (!peer_.logs_.Get(id).withdrawn) End(id, status, false);
  }
  KvReceiver& receiver() { return *receiver_; }

 private:
  void End(SessionId id, const Status& status, bool committed) {
    peer_.logs_.Change(id, [&](SessionLog& log) {
      ++log.ends;
      log.status = status;
      log.committed = committed;
    });
  }

  StatePeer& peer_;
  const std::unique_ptr<KvReceiver> receiver_;
};

StatePeer::StatePeer(Setup setup)
    : setup_(std::move(setup)),
      device_(DeviceFor(setup_.transport)),
      arena_(device_.device(), BlockBytes() * kArenaBlocks) {
  if (setup_.is_sender) {
    arena_.Put(0, Pattern(arena_.size(), kSeed));
    sending_ = std::make_unique<Sending>(*this);
  } else {
    arena_.Fill(kEmpty);
    receiving_ = std::make_unique<Receiving>(*this);
  }
}

StatePeer::~StatePeer() {
  Disconnect();
}

KvTransferOptions StatePeer::MakeOptions() {
  KvTransferOptions options;
  options.worker = WorkerId(setup_.is_sender ? "prefill" : "decode");
  options.boot = BootId(RandomId());
  options.layout = kLayout;
  options.shards = {{WholeModel(kLayout), &arena_.buffer(), kArenaBlocks}};
  options.dma = device_.dma();
  options.transport.require_transport = setup_.transport;
  options.transport.listen_address = "127.0.0.1:0";
  options.times = HandoffPair::Impatient();
  options.transport.fence_timeout = options.times.fence;
  options.op_bytes = BlockBytes();
  options.on_state = setup_.on_state;
  return options;
}

void StatePeer::Begin(UniqueFd socket, SessionId session) {
  control_ = std::make_unique<SocketControl>(std::move(socket));
  (void)control_->Send(
      {SessionId(),
       Epoch(),
       setup_.is_sender ? sending_->sender().hello() : receiving_->receiver().hello()});
  const Envelope hello = Must(control_->Receive());
  const auto& theirs = std::get<Hello>(hello.message);
  const Status added = setup_.is_sender
                           ? sending_->sender().AddPeer(kPeer, control_.get(), theirs)
                           : receiving_->receiver().AddPeer(kPeer, control_.get(), theirs);
  if (!added.ok()) throw std::runtime_error(std::string(Message(added)));
  control_->Start(
      [this](Envelope message) {
        if (setup_.is_sender) {
          (void)sending_->sender().OnMessage(kPeer, std::move(message));
        } else {
          (void)receiving_->receiver().OnMessage(kPeer, std::move(message));
        }
      },
      [this] {
        if (setup_.is_sender) return sending_->sender().RemovePeer(kPeer);
        receiving_->receiver().RemovePeer(kPeer);
      });
  if (setup_.is_sender) Offer(session);
}

void StatePeer::Offer(SessionId session) {
  KvSender& sender = sending_->sender();
  const uint64_t ops = sender.Stats().ops;
  sender.Offer({session,
                kEpoch,
                kPeer,
                kTokenBlocks * static_cast<uint32_t>(kLayout.block_tokens),
                std::chrono::seconds(10)});
  if (setup_.course == HandoffCourse::kIsWithdrawn) {
    return sender.Abort(session, kEpoch, MakeStatus(StatusCode::kCancelled, "withdrawn"));
  }
  const bool hangs = setup_.course == HandoffCourse::kHangs;
  if (hangs) device_.fake()->Hold();
  const std::vector<BlockId> blocks = BlocksOf(/*is_sender=*/true);
  const std::span<const BlockId> all(blocks);
  sender.ChunkReady(session, kEpoch, 0, all.first(kTokenBlocks), all.subspan(kTokenBlocks));
  if (!hangs && setup_.course != HandoffCourse::kIsAborted) {
    return sender.Seal(session, kEpoch, "payload");
  }
  WaitUntil([&] {
    const bool moves = hangs ? device_.fake()->waiting() > 0 : sender.Stats().ops > ops;
    return moves || logs_.Get(session).ends > 0;
  });
  sender.Abort(session, kEpoch, MakeStatus(StatusCode::kCancelled, "aborted"));
}

void StatePeer::ReleaseCopies() {
  if (device_.fake() != nullptr) device_.fake()->Release();
}

KvTransferStats StatePeer::Stats() const {
  return setup_.is_sender ? sending_->sender().Stats() : receiving_->receiver().Stats();
}

std::string StatePeer::WaitQuiet(SessionId session) {
  KvTransferStats stats;
  const auto open = [&] { return stats.offered + stats.streaming + stats.draining; };
  const SteadyClock clock;
  const Time until = clock.Now() + std::chrono::seconds(20);
  while (clock.Now() < until) {
    stats = Stats();
    if (logs_.Get(session).ends > 0 && open() + stats.quarantined == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const SessionLog log = logs_.Get(session);
  if (log.ends == 1 && open() + stats.quarantined + stats.quarantined_blocks == 0) return {};
  return fmt::format("session {} ended {} times; {} sessions are open, {} in quarantine",
                     session,
                     log.ends,
                     open(),
                     stats.quarantined);
}

void StatePeer::Disconnect() {
  if (!control_) return;
  if (setup_.is_sender) {
    sending_->sender().RemovePeer(kPeer);
  } else {
    receiving_->receiver().RemovePeer(kPeer);
  }
  control_.reset();
}

std::string StatePeer::CompareContent() const {
  std::vector<std::byte> expected(arena_.size(), kEmpty);
  const std::vector<std::byte> source = Pattern(arena_.size(), kSeed);
  const std::vector<BlockId> from = BlocksOf(/*is_sender=*/true);
  const std::vector<BlockId> to = BlocksOf(/*is_sender=*/false);
  for (size_t i = 0; i < from.size(); ++i) {
    std::memcpy(expected.data() + to[i].value() * BlockBytes(),
                source.data() + from[i].value() * BlockBytes(),
                BlockBytes());
  }
  const std::vector<std::byte> content = arena_.GetAll();
  const auto differs = std::ranges::mismatch(content, expected).in1 - content.begin();
  if (static_cast<size_t>(differs) == content.size()) return {};
  return fmt::format("byte {} of the receiver's arena is wrong", differs);
}

}  // namespace baton

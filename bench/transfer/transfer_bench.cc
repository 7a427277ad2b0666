// How fast KV moves between two processes of this machine, and how long a small hand-off takes.
// Prints one JSON object. Usage: kv_transfer_bench [seconds per case]

#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/host_buffer.h"
#include "tests/conformance/socket_control.h"

namespace baton {
namespace {

constexpr uint32_t kArenaBlocks = 256;

struct BenchCase {
  std::string transport;
  KvLayout layout;
  bool checksums = true;
  uint32_t blocks = 0;  // a hand-off
  double seconds = 1;
};

KvTransferOptions MakeOptions(const BenchCase& c, const char* name, const Buffer& arena) {
  KvTransferOptions options;
  options.worker = WorkerId(name);
  options.layout = c.layout;
  options.shards = {{WholeModel(c.layout), &arena, kArenaBlocks}};
  options.transport.require_transport = c.transport;
  options.transport.listen_address = "127.0.0.1:0";
  options.checksums = c.checksums;
  return options;
}

// Blocks of one hand-off, scattered over the arena.
std::vector<BlockId> ScatteredBlocks(uint32_t count, uint64_t seed) {
  std::vector<uint32_t> ids(kArenaBlocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back(BlockId(ids[i]));
  return blocks;
}

// The decode side: grants everything, until the control socket closes.
class GrantAll final : public KvReceiverListener {
 public:
  explicit GrantAll(const BenchCase& c) : blocks_(ScatteredBlocks(c.blocks, 2)) {}
  void OnOffer(const WorkerId&, SessionId id, Epoch epoch, const Offer&) override {
    receiver->Grant(id, epoch, 0, blocks_);
  }
  void OnWithdrawn(SessionId, Epoch, const Status&) override {}
  void OnCommitted(SessionId, Epoch, const std::string&, const TransferStats&) override {}
  void OnReleased(SessionId, Epoch, const Status& status) override {
    fmt::print(stderr, "released: {}\n", Message(status));
  }

  KvReceiver* receiver = nullptr;

 private:
  const std::vector<BlockId> blocks_;
};

template <class T>
T Must(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "{}\n", Message(value.status()));
  std::exit(1);
}

int RunReceiver(const BenchCase& c, UniqueFd socket) {
  HostBuffer arena(ShardBlockBytes(c.layout, WholeModel(c.layout)) * kArenaBlocks);
  std::memset(arena.data(), 1, arena.size());
  GrantAll listener(c);
  auto receiver = Must(KvReceiver::Create(MakeOptions(c, "decode", arena), listener));
  listener.receiver = receiver.get();
  SocketControl control(std::move(socket));
  const Envelope hello = Must(control.Receive());
  (void)control.Send({SessionId(), Epoch(), 0, receiver->hello()});
  const Status added =
      receiver->AddPeer(WorkerId("prefill"), &control, std::get<Hello>(hello.message));
  if (!added.ok()) return 1;
  while (true) {
    StatusOr<Envelope> envelope = control.Receive();
    if (!envelope.ok()) break;
    (void)receiver->OnMessage(WorkerId("prefill"), *std::move(envelope));
  }
  receiver->RemovePeer(WorkerId("prefill"));
  return 0;
}

// The prefill side: waits for one hand-off after the other.
class WaitEnd final : public KvSenderListener {
 public:
  void OnGranted(SessionId, Epoch, uint32_t) override {}
  void OnRefused(SessionId, Epoch, const Status& status) override { End(status, {}); }
  void OnFinished(SessionId, Epoch, const Status& status, const TransferStats& stats) override {
    End(status, stats);
  }
  TransferStats Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    ended_ = false;
    return stats_;
  }

 private:
  void End(const Status& status, const TransferStats& stats) {
    if (!status.ok()) {
      fmt::print(stderr, "failed: {}\n", Message(status));
      std::exit(1);
    }
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      stats_ = stats;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  TransferStats stats_;
};

std::string RunSender(const BenchCase& c, UniqueFd socket) {
  const size_t block_bytes = ShardBlockBytes(c.layout, WholeModel(c.layout));
  HostBuffer arena(block_bytes * kArenaBlocks);
  FillPattern({arena.data(), arena.size()}, 1);
  WaitEnd listener;
  auto sender = Must(KvSender::Create(MakeOptions(c, "prefill", arena), listener));
  SocketControl control(std::move(socket));
  (void)control.Send({SessionId(), Epoch(), 0, sender->hello()});
  const Envelope hello = Must(control.Receive());
  const Status added =
      sender->AddPeer(WorkerId("decode"), &control, std::get<Hello>(hello.message));
  if (!added.ok()) Must(StatusOr<int>(added));
  control.Start(
      [&](Envelope envelope) { (void)sender->OnMessage(WorkerId("decode"), std::move(envelope)); },
      [] {});
  const std::vector<BlockId> blocks = ScatteredBlocks(c.blocks, 1);
  std::vector<double> micros;
  double busy_seconds = 0;
  uint64_t bytes = 0;
  const SteadyClock clock;
  const Time until = clock.Now() + FromSeconds(c.seconds);
  for (uint64_t i = 0; clock.Now() < until; ++i) {
    const Time begin = clock.Now();
    OfferRequest request;
    request.session = SessionId(i);
    request.epoch = Epoch(1);
    request.peer = WorkerId("decode");
    request.total_tokens = c.blocks * static_cast<uint32_t>(c.layout.block_tokens);
    request.timeout = std::chrono::seconds(10);
    sender->Offer(request);
    sender->ChunkReady(request.session, request.epoch, 0, blocks);
    sender->Seal(request.session, request.epoch, "t");
    const TransferStats stats = listener.Wait();
    if (i < 3) continue;  // page faults and connection set-up
    micros.push_back(ToSeconds(clock.Now() - begin) * 1e6);
    busy_seconds += ToSeconds(clock.Now() - begin);
    bytes += stats.bytes;
  }
  sender->RemovePeer(WorkerId("decode"));
  std::sort(micros.begin(), micros.end());
  const double median = micros.empty() ? 0 : micros[micros.size() / 2];
  return fmt::format(
      R"({{"transport": "{}", "checksums": {}, "block_bytes": {}, "blocks": {}, "handoffs": {}, )"
      R"("gb_per_s": {:.3f}, "handoff_us_p50": {:.1f}, "handoff_us_min": {:.1f}}})",
      c.transport,
      c.checksums,
      block_bytes,
      c.blocks,
      micros.size(),
      busy_seconds > 0 ? static_cast<double>(bytes) / busy_seconds / 1e9 : 0.0,
      median,
      micros.empty() ? 0 : micros.front());
}

std::string RunCase(const BenchCase& c) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::exit(1);
  UniqueFd ours(fds[0]);
  UniqueFd theirs(fds[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ours.Reset();
    ::_exit(RunReceiver(c, std::move(theirs)));
  }
  theirs.Reset();
  std::string result = RunSender(c, std::move(ours));
  ::waitpid(child, nullptr, 0);
  return result;
}

int Main(double seconds) {
  // SmolLM2-135M in f16 (368,640 bytes a block), Llama 3.1 8B in bf16 (2 MiB a block).
  const KvLayout small{.layers = 30, .kv_heads = 3, .head_dim = 64, .dtype = DType::kF16};
  const KvLayout large{.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16};
  std::vector<BenchCase> cases;
  for (const std::string transport : {"shm", "tcp"}) {
    for (const bool checksums : {true, false}) {
      cases.push_back({transport, small, checksums, 63, seconds});
      cases.push_back({transport, large, checksums, 63, seconds});
    }
    cases.push_back({transport, small, true, 4, seconds});
  }
  const KvLayout tiny{.layers = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::kF16};
  cases.push_back({"shm", tiny, true, 4, seconds});
  cases.push_back({"tcp", tiny, true, 4, seconds});
  fmt::print("{{\"benchmark\": \"kv_transfer\", \"cases\": [\n");
  for (size_t i = 0; i < cases.size(); ++i) {
    fmt::print("  {}{}\n", RunCase(cases[i]), i + 1 < cases.size() ? "," : "");
    std::fflush(stdout);
  }
  fmt::print("]}}\n");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main(argc > 1 ? std::atof(argv[1]) : 1.0);
}

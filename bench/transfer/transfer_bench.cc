// Measures how fast KV moves between two processes of this machine, and how long a small hand-off
// takes. Prints one JSON object.
// Usage: kv_transfer_bench [SECONDS_PER_CASE [SENDER_DEVICE RECEIVER_DEVICE [MIB_PER_WRITE
//                          [TRANSPORT]]]]
// Both devices default to "cpu". "verbs:rxe0" is the CPU with the RDMA device rxe0, over verbs
// only. MIB_PER_WRITE = 0 leaves the write size to the transport. TRANSPORT selects the cases of
// one transport; those of nccl run only when it names nccl.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/quantile.h"
#include "common/security/cluster_proofs.h"
#include "kernels/backend.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/must.h"
#include "tests/conformance/socket_control.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

struct BenchCase {
  std::string transport;
  KvLayout layout;
  bool checksums = true;
  uint32_t blocks = 0;  // KV blocks of each hand-off
  uint32_t arena_blocks = 256;
  // Ranks of each side, which share the heads equally.
  int32_t sender_ranks = 1;
  int32_t receiver_ranks = 1;
  bool authenticated = false;  // tcp: frames have tags
};

// The arguments of both processes.
struct Setup {
  double seconds = 1;
  std::string sender_device = "cpu";
  std::string receiver_device = "cpu";
  size_t write_mib = 0;
  std::string transport;  // empty: all
};

constexpr std::string_view kVerbsPrefix = "verbs:";
constexpr uint64_t kWarmUp = 3;  // hand-offs: page faults and connection set-up

std::unique_ptr<Backend> Open(const std::string& device) {
  BackendOptions options;
  options.device = device.starts_with(kVerbsPrefix) ? "cpu" : device;
  return Must(OpenBackend(options));
}

// A device and the arenas of this side's ranks on it.
struct Memory {
  Memory(const BenchCase& c, const std::string& device, int32_t ranks) : backend(Open(device)) {
    const int32_t heads = c.layout.sharded_heads() / ranks;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      shards.push_back({0, c.layout.layers(), rank * heads, heads});
      arenas.push_back(std::make_unique<TestMemory>(
          backend->device(), ShardBlockBytes(c.layout, shards.back()) * c.arena_blocks));
      arenas.back()->Fill(std::byte{1});
    }
  }
  const Buffer& first() const { return arenas.front()->buffer(); }
  size_t first_block_bytes(const BenchCase& c) const {
    return ShardBlockBytes(c.layout, shards.front());
  }

  std::unique_ptr<Backend> backend;
  std::vector<KvShard> shards;
  std::vector<std::unique_ptr<TestMemory>> arenas;
};

// The proofs of both processes, which need no real secret.
std::shared_ptr<const PeerProofs> Proofs() {
  static MetricsRegistry metrics;
  return std::make_shared<ClusterProofs>(Must(ClusterSecret::Parse(std::string(32, 's'))),
                                         std::make_shared<Refusals>(metrics));
}

// The bytes of one head of one plane of one layer in a block.
uint64_t HeadBytes(const KvLayout& layout) {
  return ShardBlockBytes(layout, {0, 1, 0, 1}) / 2;
}

KvTransferOptions MakeOptions(const BenchCase& c,
                              const char* name,
                              const Memory& memory,
                              const std::string& device) {
  KvTransferOptions options;
  options.worker = WorkerId(name);
  options.boot = BootId(RandomId());
  options.layout = c.layout;
  for (size_t rank = 0; rank < memory.shards.size(); ++rank) {
    options.shards.push_back({memory.shards[rank], &memory.arenas[rank]->buffer(), c.arena_blocks});
  }
  options.dma = memory.backend->dma();
  options.transport.require_transport = c.transport;
  options.transport.listen_address = "127.0.0.1:0";
  options.transport.authenticate_frames = c.authenticated;
  if (c.authenticated) options.transport.proofs = Proofs();
  if (device.starts_with(kVerbsPrefix)) {
    options.transport.verbs.devices = {device.substr(kVerbsPrefix.size())};
  }
  options.checksums = c.checksums;
  return options;
}

// The blocks of one hand-off, at random places in the arena.
std::vector<BlockId> ScatteredBlocks(const BenchCase& c, uint64_t seed) {
  std::vector<uint32_t> ids(c.arena_blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < c.blocks; ++i) blocks.push_back(BlockId(ids[i]));
  return blocks;
}

// The decode side: grants every offer until the control socket closes.
class GrantAll final : public KvReceiverListener {
 public:
  explicit GrantAll(const BenchCase& c) : blocks_(ScatteredBlocks(c, 2)) {}
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

int RunReceiver(const BenchCase& c, const Setup& setup, UniqueFd socket) {
  Memory memory(c, setup.receiver_device, c.receiver_ranks);
  if (Dma* dma = memory.backend->dma(); dma != nullptr) {
    const std::string exported = Must(dma->Export(memory.first()));
    (void)!::send(socket.get(), exported.data(), exported.size(), MSG_NOSIGNAL);
  }
  GrantAll listener(c);
  auto receiver =
      Must(KvReceiver::Create(MakeOptions(c, "decode", memory, setup.receiver_device), listener));
  listener.receiver = receiver.get();
  SocketControl control(std::move(socket));
  const Envelope hello = Must(control.Receive());
  (void)control.Send({SessionId(), Epoch(), receiver->hello()});
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

// The prefill side: waits for the end of each hand-off.
class WaitEnd final : public KvSenderListener {
 public:
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
    Must(status);
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

// Median rate in GB/s of plain copies of a hand-off's blocks within this process's memory, by one
// thread.
double HostCopyRate(const BenchCase& c, const Memory& memory) {
  const size_t block_bytes = memory.first_block_bytes(c);
  TestMemory to(memory.backend->device(), block_bytes * c.arena_blocks);
  to.Fill(std::byte{2});
  const std::vector<BlockId> from_blocks = ScatteredBlocks(c, 1);
  const std::vector<BlockId> to_blocks = ScatteredBlocks(c, 2);
  const SteadyClock clock;
  std::vector<double> rates;
  for (int i = 0; i < 41; ++i) {
    const Time begin = clock.Now();
    for (size_t b = 0; b < from_blocks.size(); ++b) {
      std::memcpy(to.buffer().data() + to_blocks[b].value() * block_bytes,
                  memory.first().data() + from_blocks[b].value() * block_bytes,
                  block_bytes);
    }
    rates.push_back(static_cast<double>(block_bytes * c.blocks) / ToSeconds(clock.Now() - begin) /
                    1e9);
  }
  return Median(std::move(rates));
}

// Median rate in GB/s of one plain copy to the peer's GPU: of a hand-off's bytes, if they fit.
double PeerCopyRate(const BenchCase& c, Memory& memory, const UniqueFd& socket) {
  Dma* dma = memory.backend->dma();
  std::string exported(4096, '\0');
  const ssize_t got = ::recv(socket.get(), exported.data(), exported.size(), 0);
  exported.resize(got > 0 ? static_cast<size_t>(got) : 0);
  const auto peer = Must(dma->Import(exported));
  const auto queue = Must(dma->MakeQueue());
  const uint64_t bytes = std::min(memory.first_block_bytes(c) * c.blocks, peer->size());
  const CopyRun run{0, 0, bytes};
  const SteadyClock clock;
  std::vector<double> rates;
  for (int i = 0; i < 41; ++i) {
    const Time begin = clock.Now();
    const Status posted = queue->Copy(1, memory.first(), *peer, {&run, 1});
    if (!posted.ok()) Must(StatusOr<int>(posted));
    std::array<DmaDone, 1> done;
    while (queue->Poll(done) == 0) {
    }
    rates.push_back(static_cast<double>(bytes) / ToSeconds(clock.Now() - begin) / 1e9);
  }
  return Median(std::move(rates));
}

// The processor time of a process in seconds.
double CpuSeconds(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

std::string RunSender(const BenchCase& c, const Setup& setup, UniqueFd socket, pid_t receiver) {
  const size_t block_bytes = ShardBlockBytes(c.layout, WholeModel(c.layout));
  Memory memory(c, setup.sender_device, c.sender_ranks);
  const bool on_host = memory.backend->dma() == nullptr;
  double raw_rate = on_host ? 0 : PeerCopyRate(c, memory, socket);
  WaitEnd listener;
  KvTransferOptions options = MakeOptions(c, "prefill", memory, setup.sender_device);
  options.op_bytes = setup.write_mib << 20;
  auto sender = Must(KvSender::Create(std::move(options), listener));
  SocketControl control(std::move(socket));
  (void)control.Send({SessionId(), Epoch(), sender->hello()});
  const Envelope hello = Must(control.Receive());
  const Status added =
      sender->AddPeer(WorkerId("decode"), &control, std::get<Hello>(hello.message));
  if (!added.ok()) Must(StatusOr<int>(added));
  // The receiver has filled its arena by now, which would slow the copies down.
  if (on_host) raw_rate = HostCopyRate(c, memory);
  control.Start(
      [&](Envelope envelope) { (void)sender->OnMessage(WorkerId("decode"), std::move(envelope)); },
      [] {});
  const std::vector<BlockId> blocks = ScatteredBlocks(c, 1);
  std::vector<double> micros;
  std::vector<double> rates;
  double first_micros = 0;
  double busy_seconds = 0;
  uint64_t bytes = 0;
  uint64_t all_bytes = 0;  // with the warm-up
  const double cpu_begin = CpuSeconds(::getpid());
  const double receiver_cpu_begin = CpuSeconds(receiver);
  const SteadyClock clock;
  Time until = kNever;
  for (uint64_t i = 0; clock.Now() < until; ++i) {
    if (i == kWarmUp) until = clock.Now() + FromSeconds(setup.seconds);
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
    all_bytes += stats.bytes;
    if (i == 0) first_micros = ToSeconds(clock.Now() - begin) * 1e6;
    if (i < kWarmUp) continue;
    rates.push_back(stats.bytes_per_second / 1e9);
    micros.push_back(ToSeconds(clock.Now() - begin) * 1e6);
    busy_seconds += ToSeconds(clock.Now() - begin);
    bytes += stats.bytes;
  }
  const double cpu = CpuSeconds(::getpid()) - cpu_begin;
  const double receiver_cpu = CpuSeconds(receiver) - receiver_cpu_begin;
  const double gib = static_cast<double>(all_bytes) / (1 << 30);
  sender->RemovePeer(WorkerId("decode"));
  return fmt::format(
      R"({{"transport": "{}", "checksums": {}, "authenticated": {}, "ranks": "{} to {}", )"
      R"("head_bytes": {}, "block_bytes": {}, "blocks": {}, "handoffs": {}, )"
      R"("gb_per_s": {:.3f}, "stream_gb_per_s_p50": {:.3f}, "raw_copy_gb_per_s": {:.3f}, "handoff_us_p50": {:.1f}, )"
      R"("handoff_us_min": {:.1f}, "first_handoff_us": {:.1f}, "sender_cpu_s_per_gib": {:.3f}, )"
      R"("receiver_cpu_s_per_gib": {:.3f}}})",
      c.transport,
      c.checksums,
      c.authenticated,
      c.sender_ranks,
      c.receiver_ranks,
      HeadBytes(c.layout),
      block_bytes,
      c.blocks,
      micros.size(),
      busy_seconds > 0 ? static_cast<double>(bytes) / busy_seconds / 1e9 : 0.0,
      Median(rates),
      raw_rate,
      Median(micros),
      micros.empty() ? 0 : std::ranges::min(micros),
      first_micros,
      cpu / gib,
      receiver_cpu / gib);
}

// Between 2 and 8 ranks each head of a block is a run of its own, at the side of the 2 ranks.
void AddCasesOfRanks(const std::string& transport, std::vector<BenchCase>& cases) {
  constexpr std::array<std::pair<int32_t, int32_t>, 3> kRanks = {{{2, 2}, {8, 2}, {2, 8}}};
  for (const int32_t head_dim : {128, 64, 32, 16}) {
    const KvLayout layout =
        DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = head_dim, .dtype = DType::kBF16});
    for (const auto& [sender_ranks, receiver_ranks] : kRanks) {
      cases.push_back({.transport = transport,
                       .layout = layout,
                       .blocks = 63,
                       .arena_blocks = 64,
                       .sender_ranks = sender_ranks,
                       .receiver_ranks = receiver_ranks});
    }
  }
}

std::vector<BenchCase> CasesOf(const Setup& setup) {
  // SmolLM2-135M in f16 (368,640 bytes per block) and Llama 3.1 8B in bf16 (2 MiB per block).
  const KvLayout small =
      DenseLayout({.layers = 30, .kv_heads = 3, .head_dim = 64, .dtype = DType::kF16});
  const KvLayout large =
      DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
  const KvLayout tiny =
      DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::kF16});
  std::vector<BenchCase> cases;
  if (setup.sender_device.starts_with(kVerbsPrefix)) {
    for (const bool checksums : {true, false}) cases.push_back({"verbs", small, checksums, 32, 64});
    // The same hand-off of one block over the other transports of the machine.
    for (const std::string transport : {"verbs", "tcp", "shm"}) {
      cases.push_back({transport, tiny, true, 1, 64});
    }
    AddCasesOfRanks("verbs", cases);
    return cases;
  }
  if (setup.sender_device != "cpu") {
    for (const bool checksums : {true, false}) {
      for (const uint32_t blocks : {1u, 32u, 128u, 512u}) {
        cases.push_back({"cuda_ipc", large, checksums, blocks, 1024});
      }
    }
    // Between unequal ranks a run has the heads of the smaller slice, 4 KiB each.
    for (const auto& [from, to] : {std::pair{2, 2}, {1, 2}, {1, 4}, {4, 1}}) {
      cases.push_back({"cuda_ipc", large, true, 512, 1024, from, to});
    }
    cases.push_back({"tcp", large, true, 128, 1024});
    if (setup.transport == "nccl") {
      for (const uint32_t blocks : {32u, 128u, 512u}) {
        cases.push_back({"nccl", large, true, blocks, 1024});
      }
    }
    return cases;
  }
  for (const std::string transport : {"shm", "tcp"}) {
    for (const bool checksums : {true, false}) {
      cases.push_back({transport, small, checksums, 63});
      cases.push_back({transport, large, checksums, 63});
    }
    cases.push_back({transport, small, true, 4});
  }
  cases.push_back({"shm", tiny, true, 4});
  cases.push_back({"tcp", tiny, true, 4});
  for (const KvLayout& layout : {small, large}) {
    cases.push_back({.transport = "tcp", .layout = layout, .blocks = 63, .authenticated = true});
  }
  AddCasesOfRanks("shm", cases);
  AddCasesOfRanks("tcp", cases);
  return cases;
}

// Runs the receiver with fork and exec, because the state of the CUDA driver does not survive a
// fork alone.
std::string RunCase(size_t index, const BenchCase& c, const Setup& setup) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::exit(1);
  UniqueFd ours(fds[0]);
  const std::string seconds = fmt::format("{}", setup.seconds);
  const std::string number = fmt::format("{}", index);
  const std::string theirs = fmt::format("{}", fds[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::fcntl(fds[1], F_SETFD, 0);
    ::execl("/proc/self/exe",
            "kv_transfer_bench",
            seconds.c_str(),
            setup.sender_device.c_str(),
            setup.receiver_device.c_str(),
            "0",
            setup.transport.c_str(),
            number.c_str(),
            theirs.c_str(),
            nullptr);
    ::_exit(1);
  }
  ::close(fds[1]);
  std::string result = RunSender(c, setup, std::move(ours), child);
  ::waitpid(child, nullptr, 0);
  return result;
}

int Main(std::span<char*> args) {
  Setup setup;
  if (args.size() > 1) setup.seconds = std::atof(args[1]);
  if (args.size() > 3) {
    setup.sender_device = args[2];
    setup.receiver_device = args[3];
  }
  if (args.size() > 4) setup.write_mib = std::strtoul(args[4], nullptr, 10);
  if (args.size() > 5) setup.transport = args[5];
  std::vector<BenchCase> cases = CasesOf(setup);
  if (!setup.transport.empty()) {
    std::erase_if(cases, [&](const BenchCase& c) { return c.transport != setup.transport; });
  }
  if (cases.empty()) {
    fmt::print(stderr, "these devices have no case of the transport '{}'\n", setup.transport);
    return 1;
  }
  if (args.size() > 7) {
    return RunReceiver(
        cases.at(std::strtoul(args[6], nullptr, 10)), setup, UniqueFd(std::atoi(args[7])));
  }
  fmt::print(
      "{{\"benchmark\": \"kv_transfer\", \"sender\": \"{}\", \"receiver\": \"{}\", "
      "\"cases\": [\n",
      setup.sender_device,
      setup.receiver_device);
  for (size_t i = 0; i < cases.size(); ++i) {
    fmt::print("  {}{}\n", RunCase(i, cases[i], setup), i + 1 < cases.size() ? "," : "");
    std::fflush(stdout);
  }
  fmt::print("]}}\n");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main({argv, static_cast<size_t>(argc)});
}

// What the data planes of a hand-off between GPUs cost the processor, without the GPUs: 1 GiB over
// cuda_ipc between imaginary GPUs whose copies and checksums end at once. The real rate cannot be
// higher than what the slower of the two ends allows.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "common/base/take_front.h"
#include "kernels/dma.h"
#include "kvtransfer/data_plane/local_data_plane.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

// Memory that has a size and no bytes.
class NoBuffer final : public Buffer {
 public:
  explicit NoBuffer(size_t size) : size_(size) {}
  MemoryKind kind() const override { return MemoryKind::kCuda; }
  std::byte* data() const override { return nullptr; }
  size_t size() const override { return size_; }
  int shared_fd() const override { return -1; }

 private:
  const size_t size_;
};

class InstantQueue final : public DmaQueue {
 public:
  explicit InstantQueue(UniqueFd ended) : ended_(std::move(ended)) {}
  int wait_fd() const override { return ended_.get(); }
  Status Copy(uint64_t id, const Buffer&, const Buffer&, std::span<const CopyRun>) override {
    done_.push_back({id, OkStatus(), {}});
    return OkStatus();
  }
  Status Checksum(uint64_t id,
                  const Buffer&,
                  std::span<const ByteRange> ranges,
                  uint64_t granule) override {
    uint64_t bytes = 0;
    for (const ByteRange& range : ranges) bytes += range.bytes;
    done_.push_back({id, OkStatus(), std::vector<uint64_t>(bytes / granule)});
    return OkStatus();
  }
  size_t Poll(std::span<DmaDone> done) override {
    uint64_t value = 0;
    (void)!::read(ended_.get(), &value, sizeof(value));
    return TakeFront(done_, done);
  }
  void WatchEnds() override {
    const uint64_t one = 1;
    if (!done_.empty()) (void)!::write(ended_.get(), &one, sizeof(one));
  }

 private:
  const UniqueFd ended_;
  std::deque<DmaDone> done_;
};

class ImaginaryGpu final : public Device, public Dma {
 public:
  std::string name() const override { return "imaginary:0"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing) override {
    return std::make_unique<NoBuffer>(bytes);
  }
  Status CopyIn(const Buffer&, size_t, std::span<const std::byte>) override { return OkStatus(); }
  Status CopyOut(const Buffer&, size_t, std::span<std::byte>) override { return OkStatus(); }
  size_t free_bytes() const override { return size_t{1} << 40; }

  StatusOr<std::string> Export(const Buffer& buffer) override {
    return std::to_string(buffer.size());
  }
  StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) override {
    return std::make_unique<NoBuffer>(std::stoull(std::string(exported)));
  }
  StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) override {
    return std::make_unique<NoBuffer>(bytes);
  }
  StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() override {
    BATON_ASSIGN_OR_RETURN(UniqueFd ended, MakeEventFd());
    return std::make_unique<InstantQueue>(std::move(ended));
  }
  StatusOr<std::string> PciAddress() const override { return "0000:00:00.0"; }
  StatusOr<DmaBuf> ExportDmaBuf(const Buffer&) override {
    return MakeStatus(StatusCode::kUnavailable, "no memory");
  }
  Status FlushPeerWrites() override { return OkStatus(); }
  StatusOr<PairExchange*> Pairs() override { return MakeStatus(StatusCode::kNotFound, "no NCCL"); }
};

constexpr uint32_t kBlocks = 512;
constexpr uint64_t kKey = 1000;
constexpr BootId kBoot{1};  // of both ends

// One end: its ranks share the heads equally.
struct End {
  End(ImaginaryGpu& gpu, const KvLayout& layout, int64_t ranks) {
    options.layout = layout;
    options.boot = kBoot;
    options.dma = &gpu;
    options.transport.boot = kBoot;
    options.transport.require_transport = "cuda_ipc";
    const auto heads = layout.sharded_heads() / static_cast<int32_t>(ranks);
    for (int32_t first = 0; first < layout.sharded_heads(); first += heads) {
      shards.push_back({0, layout.layers(), first, heads});
      arenas.push_back(
          std::make_unique<NoBuffer>(ShardBlockBytes(layout, shards.back()) * kBlocks));
      options.shards.push_back({shards.back(), arenas.back().get(), kBlocks});
    }
  }

  std::vector<KvShard> shards;
  std::vector<std::unique_ptr<NoBuffer>> arenas;
  KvTransferOptions options;
};

// Counts what both ends report.
class Progress final : public WriteListener, public WindowListener {
 public:
  void OnPosted(
      const SessionKey&, uint32_t, uint32_t, std::span<const uint64_t>, uint64_t) override {}
  void OnWritten(const SessionKey&, uint32_t pieces, uint64_t) override { written += pieces; }
  void OnWriteLost(const SessionKey&, uint32_t, const Status& reason) override {
    BATON_CHECK(false, "a write is lost: {}", Message(reason));
  }
  void OnArrival(const SessionKey&, const PieceArrival&, std::string_view, bool) override {}
  void OnMisplaced(const SessionKey&, const Status& error) override {
    BATON_CHECK(false, "a write is misplaced: {}", Message(error));
  }
  void OnNote(const SessionKey&, std::string_view) override {}
  void OnWindowsClosed(const SessionKey&, const Status&) override { closed = true; }

  uint64_t written = 0;
  bool closed = false;
};

double ThreadSeconds() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// A sending and a receiving data plane, which take turns on this thread.
class Planes final {
 public:
  Planes(const KvLayout& layout, int64_t senders, int64_t receivers)
      : sender_(gpu_, layout, senders),
        receiver_(gpu_, layout, receivers),
        from_(LocalDataPlane::Create(sender_.options, /*listen=*/false).value()),
        to_(LocalDataPlane::Create(receiver_.options, /*listen=*/true).value()) {
    Hello theirs;
    theirs.layout = layout;
    theirs.shards = to_->shards();
    writer_ = from_->NewWriter(theirs).value();
    const Status connected = writer_->Connect();
    BATON_CHECK(connected.ok(), "{}", Message(connected));
    links_ = PlanLinks(layout, sender_.shards, receiver_.shards).value();
    for (const KvLink& link : links_) {
      const BlockPair any{BlockId(0), BlockId(0)};
      const KvShard& from = sender_.shards[link.source];
      runs_ += kBlocks *
               PlanRuns(layout, from, receiver_.shards[link.destination], link, {&any, 1}).size();
    }
  }

  // Moves all blocks, in another order.
  void HandOff(bool checksums) {
    const SessionKey session(SessionId(++sessions_), Epoch(1));
    std::vector<PeerWriter::Block> blocks;
    WindowGrant grant;
    grant.window_key = kKey * sessions_;
    std::vector<BlockId>& granted = grant.blocks.emplace_back();
    for (uint32_t i = 0; i < kBlocks; ++i) {
      granted.push_back(BlockId(i * 77 % kBlocks));
      blocks.push_back({i, {BlockId(i), granted.back()}});
    }
    grant.peer = std::make_shared<const PeerLinks>(PeerLinks{kBoot, sender_.shards, links_});
    const auto groups = static_cast<uint32_t>(sender_.options.layout.layer_groups());
    Progress progress;
    InReceiver([&] {
      const Status opened = to_->OpenWindows(session, grant);
      BATON_CHECK(opened.ok(), "{}", Message(opened));
    });
    InSender([&] {
      writer_->Enqueue(
          session,
          {.window_key = grant.window_key, .checksums = checksums, .end_group = groups},
          blocks);
    });
    while (progress.written < kBlocks * links_.size()) {
      InSender([&] { writer_->Poll(clock_.Now(), progress); });
      InReceiver([&] { to_->Poll(clock_.Now(), progress); });
    }
    InSender([&] { writer_->Release(grant.window_key); });
    InReceiver([&] { to_->CloseWindows(session); });
    while (!progress.closed) {
      InSender([&] { writer_->Poll(clock_.Now(), progress); });
      InReceiver([&] { to_->Poll(clock_.Now(), progress); });
    }
  }

  uint64_t runs() const { return runs_; }  // of a hand-off
  double sender_seconds() const { return sender_seconds_; }
  double receiver_seconds() const { return receiver_seconds_; }

 private:
  template <class Work>
  void InSender(const Work& work) {
    const double begin = ThreadSeconds();
    work();
    sender_seconds_ += ThreadSeconds() - begin;
  }
  template <class Work>
  void InReceiver(const Work& work) {
    const double begin = ThreadSeconds();
    work();
    receiver_seconds_ += ThreadSeconds() - begin;
  }

  const SteadyClock clock_;
  ImaginaryGpu gpu_;
  End sender_;
  End receiver_;
  std::unique_ptr<LocalDataPlane> from_;
  std::unique_ptr<LocalDataPlane> to_;
  std::unique_ptr<PeerWriter> writer_;
  std::vector<KvLink> links_;
  uint64_t runs_ = 0;
  uint64_t sessions_ = 0;
  double sender_seconds_ = 0;
  double receiver_seconds_ = 0;
};

// 1 GiB of Llama 3.1 8B's KV. Arguments: ranks of the sender and of the receiver, checksums.
// Reports the processor time of each end, in all and for each run.
void HandOff(benchmark::State& state) {
  const KvLayout layout =
      DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
  Planes planes(layout, state.range(0), state.range(1));
  planes.HandOff(true);  // connects
  const double sender = planes.sender_seconds();
  const double receiver = planes.receiver_seconds();
  while (state.KeepRunning()) planes.HandOff(state.range(2) != 0);
  const auto report = [&](const std::string& end, double seconds) {
    const auto runs = static_cast<double>(planes.runs());
    state.counters[end + "_ms"] =
        benchmark::Counter(seconds * 1e3, benchmark::Counter::kAvgIterations);
    state.counters[end + "_ns_per_run"] =
        benchmark::Counter(seconds * 1e9 / runs, benchmark::Counter::kAvgIterations);
  };
  state.counters["runs"] = static_cast<double>(planes.runs());
  report("sender", planes.sender_seconds() - sender);
  report("receiver", planes.receiver_seconds() - receiver);
}
BENCHMARK(HandOff)
    ->ArgNames({"senders", "receivers", "checksums"})
    ->ArgsProduct({{1}, {1, 2, 4}, {0, 1}})
    ->ArgsProduct({{4}, {1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();

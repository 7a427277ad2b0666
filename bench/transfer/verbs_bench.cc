// What a hand-off over verbs costs without the network: the RDMA devices are imaginary, and their
// writes are copies within this process. Beside it the same hand-off over shm and tcp, and the
// processor time of each run between ranks of unequal shapes.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "kvtransfer/verbs/verbs_transport.h"
#include "kvtransfer/verbs/write_queue.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/loopback_verbs.h"

namespace baton {
namespace {

HandoffPair::Options OptionsOf(const std::string& transport) {
  HandoffPair::Options options;
  options.transport = transport;
  if (transport == "verbs") {
    options.make_transport = [](std::string_view) {
      TransportOptions verbs;
      verbs.boot = HandoffPair::kBoot;
      verbs.listen_address = "127.0.0.1:0";
      verbs.verbs.devices = {"loop0"};
      return VerbsTransport::Create(&LoopbackVerbs(), verbs, nullptr, {}, {});
    };
  }
  return options;
}

// From the offer of one block of 4 KiB by the prefill worker's thread until the decode worker's
// thread has it, and until the prefill worker's thread knows the end of the session (`end_us`),
// which frees its blocks. Both ends are threads of this process, and control messages are calls.
void HandOffOneBlock(benchmark::State& state, const std::string& transport) {
  HandoffPair::Options options = OptionsOf(transport);
  options.layout = DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::kF16});
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 1);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 0, source);
  };
  const std::array<const SessionLogs*, 2> ends = {&pair.received(), &pair.sent()};
  const SteadyClock clock;
  uint64_t session = 0;
  double end_seconds = 0;
  while (state.KeepRunning()) {
    // One of the two threads waits; else a second thread's wake-ups would disturb the first one's.
    for (const SessionLogs* logs : ends) {
      const SessionId id(++session);
      const Time begin = clock.Now();
      pair.Send(id, source, 1, "t");
      BATON_CHECK(logs->WaitEnd(id), "hand-off {} does not end", id);
      const double seconds = ToSeconds(clock.Now() - begin);
      if (logs == &pair.received()) {
        state.SetIterationTime(seconds);
      } else {
        end_seconds += seconds;
      }
      BATON_CHECK(pair.sent().WaitEnd(id), "hand-off {} does not end", id);
    }
  }
  state.counters["end_us"] =
      benchmark::Counter(end_seconds * 1e6, benchmark::Counter::kAvgIterations);
}
BENCHMARK_CAPTURE(HandOffOneBlock, verbs, "verbs")->UseManualTime();
BENCHMARK_CAPTURE(HandOffOneBlock, shm, "shm")->UseManualTime();
BENCHMARK_CAPTURE(HandOffOneBlock, tcp, "tcp")->UseManualTime();

constexpr int32_t kHeads = 8;
constexpr int32_t kLayers = 8;
constexpr uint32_t kBlocks = 32;

std::vector<KvShard> RanksOf(int64_t ranks) {
  std::vector<KvShard> shards;
  const auto heads = kHeads / static_cast<int32_t>(ranks);
  for (int32_t first = 0; first < kHeads; first += heads) {
    shards.push_back({0, kLayers, first, heads});
  }
  return shards;
}

// A hand-off between ranks of unequal shapes over verbs, without checksums. Arguments: ranks of the
// sender, of the receiver, and bytes of a run, which is one head of one plane of a block. Reports
// the processor time that all threads of both ends spend on a run, with the planning, the control
// messages and the copy itself; and of that what the imaginary devices take, which is no
// processor's work where devices are real.
void HandOffRuns(benchmark::State& state) {
  HandoffPair::Options options = OptionsOf("verbs");
  constexpr int32_t kTokens = 16;
  const auto head_dim = static_cast<int32_t>(state.range(2)) / kTokens / 2;
  options.layout = DenseLayout({.layers = kLayers,
                                .kv_heads = kHeads,
                                .head_dim = head_dim,
                                .block_tokens = kTokens,
                                .dtype = DType::kBF16});
  options.sender_shards = RanksOf(state.range(0));
  options.receiver_shards = RanksOf(state.range(1));
  options.checksums = false;
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, kBlocks);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 0, source);
  };
  uint64_t session = 0;
  const double device = LoopbackDeviceSeconds();
  while (state.KeepRunning()) {
    const SessionId id(++session);
    pair.Send(id, source, kBlocks, "t");
    BATON_CHECK(pair.sent().WaitEnd(id), "hand-off {} does not end", id);
  }
  const double device_seconds = LoopbackDeviceSeconds() - device;
  BATON_CHECK(pair.SameContent(source, source), "the blocks are not the sender's");
  constexpr double kRuns = 2.0 * kLayers * kHeads * kBlocks;
  state.counters["runs"] = kRuns;
  state.counters["cpu_us_per_run"] = benchmark::Counter(
      kRuns / 1e6, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["device_us_per_run"] =
      benchmark::Counter(device_seconds * 1e6 / kRuns, benchmark::Counter::kAvgIterations);
}
BENCHMARK(HandOffRuns)
    ->ArgNames({"senders", "receivers", "bytes"})
    ->ArgsProduct({{8}, {2}, {512, 1024, 2048, 4096}})
    ->ArgsProduct({{2}, {8}, {512, 1024, 2048, 4096}})
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();

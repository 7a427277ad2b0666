// Measures by how much KV that arrives slows a decode worker down, for several values of
// transfer.max_receive_gb_per_second. A decode step is imitated by threads that read a large
// memory, as the weights of a model are read. Prints one JSON object. The sender runs on the same
// machine and takes processor time, too, so the result is an upper bound. Usage:
// kv_receive_rate_bench [DECODE_THREADS [PERIODS]]

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/quantile.h"
#include "tests/conformance/handoff_pair.h"

namespace baton {
namespace {

constexpr size_t kWeightBytes = size_t{128} << 20;  // read by each step, by all threads together
constexpr Duration kPeriod = std::chrono::milliseconds(200);
constexpr uint32_t kBlocks = 64;
constexpr uint32_t kHandoffBlocks = 32;

// Threads that run steps one after the other until the object is destroyed.
class DecodeLoop final {
 public:
  explicit DecodeLoop(size_t threads) : barrier_(static_cast<ptrdiff_t>(threads)) {
    const size_t words = kWeightBytes / sizeof(uint64_t) / threads;
    weights_.assign(threads, std::vector<uint64_t>(words, 1));
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Run(i); });
  }
  ~DecodeLoop() {
    stops_ = true;
    threads_.clear();
  }

  // The durations of the steps, in milliseconds, while `work` runs.
  template <class Work>
  void Record(std::vector<double>& steps, const Work& work) {
    const size_t first = done_.load();
    work();
    const size_t end = done_.load();
    for (size_t step = first + 1; step < end; ++step) steps.push_back(millis_[step % kKept]);
  }

 private:
  static constexpr size_t kKept = size_t{1} << 16;

  void Run(size_t index) {
    const SteadyClock clock;
    while (true) {
      const Time begin = clock.Now();
      const std::vector<uint64_t>& mine = weights_[index];
      sums_ += std::accumulate(mine.begin(), mine.end(), uint64_t{0});
      barrier_.arrive_and_wait();
      if (index == 0) {
        millis_[done_ % kKept] = ToMillis(clock.Now() - begin);
        ++done_;
        ends_ = stops_.load();
      }
      barrier_.arrive_and_wait();
      if (ends_) return;
    }
  }

  std::vector<std::vector<uint64_t>> weights_;
  std::vector<double> millis_ = std::vector<double>(kKept);
  std::atomic<uint64_t> sums_ = 0;
  std::atomic<size_t> done_ = 0;
  std::atomic<bool> stops_ = false;
  std::atomic<bool> ends_ = false;
  std::barrier<> barrier_;
  std::vector<std::jthread> threads_;
};

// Sends hand-offs, one after the other, for one period. Returns their bytes.
uint64_t SendForOnePeriod(HandoffPair& pair, uint64_t& session) {
  const SteadyClock clock;
  const Time until = clock.Now() + kPeriod;
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < kHandoffBlocks; ++i) blocks.push_back(BlockId(i * 2));
  uint64_t bytes = 0;
  while (clock.Now() < until) {
    const SessionId id(++session);
    pair.Send(id, blocks, kHandoffBlocks, "t");
    if (!pair.sent().WaitEnd(id)) std::exit(1);
    bytes += pair.sent().Get(id).stats.bytes;
  }
  return bytes;
}

std::string Measure(const std::string& transport, double limit, size_t threads, int periods) {
  HandoffPair::Options options;
  options.transport = transport;
  options.layout =
      DenseLayout({.layers = 8, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
  options.blocks = kBlocks;
  options.receive_bytes_per_second = static_cast<uint64_t>(limit * 1e9);
  HandoffPair pair(options);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < kHandoffBlocks; ++i) blocks.push_back(BlockId(i * 2 + 1));
    pair.receiver().Grant(id, epoch, 0, blocks);
  };
  DecodeLoop decode(threads);
  std::vector<double> quiet;
  std::vector<double> busy;
  uint64_t session = 0;
  uint64_t bytes = 0;
  double seconds = 0;
  const SteadyClock clock;
  SendForOnePeriod(pair, session);  // page faults and connection set-up
  for (int i = 0; i < periods; ++i) {
    decode.Record(quiet, [] { std::this_thread::sleep_for(kPeriod); });
    const Time begin = clock.Now();
    decode.Record(busy, [&] { bytes += SendForOnePeriod(pair, session); });
    seconds += ToSeconds(clock.Now() - begin);
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) /
           static_cast<double>(std::max<size_t>(1, values.size()));
  };
  return fmt::format(R"({{"transport": "{}", "max_receive_gb_per_second": {:.2f}, )"
                     R"("received_gb_per_second": {:.3f}, "step_ms": {:.3f}, )"
                     R"("step_ms_while_receiving": {:.3f}, "rise_percent": {:.1f}, )"
                     R"("rise_percent_p50": {:.1f}}})",
                     transport,
                     limit,
                     static_cast<double>(bytes) / seconds / 1e9,
                     mean(quiet),
                     mean(busy),
                     100 * (mean(busy) / mean(quiet) - 1),
                     100 * (Median(busy) / Median(quiet) - 1));
}

int Main(int argc, char** argv) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads =
      argc > 1 ? std::strtoul(argv[1], nullptr, 10) : std::max<size_t>(1, cores - 1);
  const int periods = argc > 2 ? std::atoi(argv[2]) : 10;
  fmt::print(
      "{{\"benchmark\": \"kv_receive_rate\", \"cores\": {}, \"decode_threads\": {}, "
      "\"cases\": [\n",
      cores,
      threads);
  const std::vector<double> limits = {0, 1, 0.5, 0.25, 0.1, 0.05};
  for (const std::string transport : {"shm", "tcp"}) {
    for (const double limit : limits) {
      const bool is_last = transport == "tcp" && limit == limits.back();
      fmt::print("  {}{}\n", Measure(transport, limit, threads, periods), is_last ? "" : ",");
      std::fflush(stdout);
    }
  }
  fmt::print("]}}\n");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main(argc, argv);
}

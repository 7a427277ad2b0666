// Times the parts of a KV hand-off between two GPUs: the host's time to post copies and checksums,
// and the time until their completion is known, with a thread that sleeps on the file descriptor or
// that busy-polls. Then times copies of short rows, as between workers with unequal numbers of
// ranks. Prints JSON lines. Usage: gpu_dma_bench [from_device to_device], by default
// cuda:0 cuda:1

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/quantile.h"
#include "kernels/backend.h"
#include "tests/conformance/must.h"

namespace baton {
namespace {

constexpr uint64_t kPiece = uint64_t{256} << 10;
constexpr uint64_t kArena = uint64_t{1} << 30;
constexpr int kRounds = 40;

std::unique_ptr<Backend> Open(const char* device) {
  BackendOptions options;
  options.device = device;
  return Must(OpenBackend(options));
}

// Runs of kPiece bytes from random places to separate places, in random order.
std::vector<CopyRun> ScatteredRuns(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CopyRun> runs;
  for (size_t i = 0; i < count; ++i) {
    runs.push_back({random() % (kArena / kPiece) * kPiece, i * 2 * kPiece, kPiece});
  }
  std::shuffle(runs.begin(), runs.end(), random);
  return runs;
}

struct Times {
  double post_us = 0;
  double end_us = 0;
};

// The median times until the work is posted, and until its completion is known.
Times Measure(DmaQueue& queue, const std::function<Status()>& post, bool spin) {
  const SteadyClock clock;
  std::vector<double> posts;
  std::vector<double> ends;
  for (int i = 0; i < kRounds; ++i) {
    const Time begin = clock.Now();
    const Status posted = post();
    if (!posted.ok()) Must(StatusOr<int>(posted));
    std::array<DmaDone, 4> done;
    size_t count = queue.Poll(done);
    posts.push_back(ToSeconds(clock.Now() - begin) * 1e6);
    while (count == 0) {
      pollfd ready{queue.wait_fd(), POLLIN, 0};
      if (!spin) {
        queue.WatchEnds();
        ::poll(&ready, 1, 1000);
      }
      count = queue.Poll(done);
    }
    ends.push_back(ToSeconds(clock.Now() - begin) * 1e6);
  }
  return {Median(std::move(posts)), Median(std::move(ends))};
}

// 64 MiB in rows of `bytes` bytes. In the source, seven other rows lie between two of them; in the
// target, they fill blocks at random places.
std::vector<CopyRun> Rows(uint64_t bytes) {
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  std::vector<uint64_t> blocks(64);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(2));
  std::vector<CopyRun> runs;
  for (uint64_t at = 0; at < blocks.size() * kBlock; at += bytes) {
    runs.push_back({at * 8, 2 * kBlock * blocks[at / kBlock] + at % kBlock, bytes});
  }
  return runs;
}

void MeasureRows(DmaQueue& queue, const Buffer& source, const Buffer& target, const char* where) {
  for (const uint64_t kib : {4, 8, 16, 32, 64, 128}) {
    const std::vector<CopyRun> runs = Rows(kib << 10);
    const Times copy = Measure(
        queue, [&] { return queue.Copy(1, source, target, runs); }, true);
    fmt::print(R"({{"row_bytes": {}, "to": "{}", "bytes": {}, "copy_post_us": {:.1f}, )"
               R"("copy_us": {:.1f}}})"
               "\n",
               kib << 10,
               where,
               uint64_t{64} << 20,
               copy.post_us,
               copy.end_us);
  }
}

int Main(const char* from_device, const char* to_device) {
  const auto from = Open(from_device);
  const auto to = Open(to_device);
  const auto source = Must(from->device().Allocate(kArena, Sharing::kShared));
  const auto target = Must(to->device().Allocate(kArena, Sharing::kShared));
  const auto peer = Must(from->dma()->Import(Must(to->dma()->Export(*target))));
  const auto queue = Must(from->dma()->MakeQueue());
  for (const bool spin : {false, true}) {
    for (const size_t count : {1, 8, 32, 128, 512}) {
      const std::vector<CopyRun> runs = ScatteredRuns(count, 1);
      std::vector<ByteRange> ranges;
      for (const CopyRun& run : runs) ranges.push_back({run.source, run.bytes});
      const Times copy = Measure(
          *queue, [&] { return queue->Copy(1, *source, *peer, runs); }, spin);
      const Times sum = Measure(
          *queue, [&] { return queue->Checksum(2, *source, ranges, kPiece); }, spin);
      fmt::print(R"({{"pieces": {}, "piece_bytes": {}, "wait": "{}", "copy_post_us": {:.1f}, )"
                 R"("copy_us": {:.1f}, "checksum_post_us": {:.1f}, "checksum_us": {:.1f}}})"
                 "\n",
                 count,
                 kPiece,
                 spin ? "spin" : "descriptor",
                 copy.post_us,
                 copy.end_us,
                 sum.post_us,
                 sum.end_us);
    }
  }
  MeasureRows(*queue, *source, *peer, "the peer");
  const auto own = Must(from->device().Allocate(kArena, Sharing::kPrivate));
  MeasureRows(*queue, *source, *own, "the same GPU");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main(argc > 2 ? argv[1] : "cuda:0", argc > 2 ? argv[2] : "cuda:1");
}

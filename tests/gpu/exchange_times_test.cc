#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/cuda_status.h"
#include "tests/gpu/exchange_fixture.h"
#include "tests/gpu/nccl_all_reduce.h"

// Prints the times of exchanges as JSON lines, for comparison only. Each is the least of several
// launches of a graph of many exchanges, on the rank that takes longest.
namespace baton::cuda {
namespace {

constexpr int kRuns = 7;
constexpr int64_t kCols = 4096;
// 8 KB to 64 MB of bf16.
constexpr int64_t kRowCounts[] = {
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192};

// An even number of exchanges for a graph, fewer of large ones.
int CountFor(size_t bytes) {
  return bytes <= (size_t{8} << 20) ? 50 : 10;
}

class GpuExchangeTimes : public GpuExchange {
 protected:
  // The least time of several launches of a graph of what `body` issues.
  Status Time(int rank, const std::function<Status()>& body, float& milliseconds) {
    cudaStream_t const stream = at(streams_, rank);
    BATON_ASSIGN_OR_RETURN(cudaGraphExec_t const executable, Capture(rank, body));
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&begin));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&end));
    milliseconds = std::numeric_limits<float>::max();
    for (int run = 0; run < kRuns; ++run) {
      float took = 0;
      BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin, stream));
      BATON_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(executable, stream));
      BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(end, stream));
      BATON_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end));
      BATON_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&took, begin, end));
      milliseconds = std::min(milliseconds, took);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(executable);
    return OkStatus();
  }

  // Times `count` exchanges, which `body` issues on every rank, and prints the time of one. `sent`:
  // the bytes that a rank sends in one.
  void Print(const std::string& what,
             const std::string& how,
             size_t bytes,
             double sent,
             int count,
             const std::function<Status(int rank)>& body) {
    std::vector<float> milliseconds(static_cast<size_t>(ranks()));
    ForRanks([&](int rank) {
      return Time(
          rank, [&] { return body(rank); }, at(milliseconds, rank));
    });
    const double us = double{*std::ranges::max_element(milliseconds)} * 1e3 / count;
    fmt::print(
        "{{\"what\": \"{}\", \"ranks\": {}, \"kb\": {}, \"how\": \"{}\", \"us\": {:.2f}, "
        "\"sent_gb_per_s\": {:.0f}}}\n",
        what,
        ranks(),
        bytes >> 10,
        how,
        us,
        sent / us * 1e-3);
    std::fflush(stdout);
  }

  void PrintAllReduce(int64_t rows);
  void PrintAllGather(int64_t rows, int64_t cols);

  std::vector<std::unique_ptr<NcclAllReduce>> nccl_;
};

INSTANTIATE_TEST_SUITE_P(Ranks,
                         GpuExchangeTimes,
                         testing::ValuesIn(RankThreads::Sizes()),
                         testing::PrintToStringParamName());

// "one-shot", "two-shot" and "NCCL": the ways of ReduceOp; "chosen": what ListedExchange lists.
void GpuExchangeTimes::PrintAllReduce(int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows * kCols) * 2;
  const size_t slot = at(exchanges_, 0)->slot_bytes();
  const int count = CountFor(bytes);
  const auto print = [&](const char* how, double sent, const std::function<Status(int)>& body) {
    Print("all-reduce", how, bytes, sent * static_cast<double>(bytes), count, body);
  };
  // The same op `count` times, through the halves in turn if it goes through slots.
  const auto print_op = [&](const char* how, double sent, bool slots, bool two_shot) {
    print(how, sent, [&](int rank) {
      Ops ops;
      for (int i = 0; i < count; ++i) {
        ops.emplace_back(ReduceOp{.x = at(rows_, rank)->tensor(),
                                  .ranks = ranks(),
                                  .slot_buffer = slots ? i % PeerSlots::kSlotBuffers : kThroughNccl,
                                  .parts = at(rows_, rank)->scratch(),
                                  .two_shot = two_shot});
      }
      return LaunchAll(rank, ops);
    });
  };
  ForRanks([&](int rank) {
    return Allocate(rank, DType::kBF16, rows, kCols, kCols, bytes * static_cast<size_t>(ranks()))
        .status();
  });
  const double to_all = ranks() - 1;
  const double slices = 2 * to_all / ranks();
  if (bytes <= slot) print_op("one-shot", to_all, true, false);
  if (bytes <= TwoShotBytes(slot, ranks())) print_op("two-shot", slices, true, true);
  const bool equal_slices = rows * kCols % (8 * int64_t{ranks()}) == 0;
  const bool sliced = ranks() > 2 && equal_slices && bytes >= (size_t{512} << 10);
  print_op("NCCL", sliced ? slices : to_all, false, sliced);
  const auto chosen = [&](int rank) {
    return List(rank, slot, at(rows_, rank)->scratch(), [&](ListedExchange& exchange) {
      for (int i = 0; i < count; ++i) exchange.AllReduce(at(rows_, rank)->tensor());
    });
  };
  const Ops ops = chosen(0);
  const bool two_shot = std::get<ReduceOp>(ops.front()).two_shot;
  print(two_shot ? "chosen: two-shot" : "chosen: one-shot",
        two_shot ? slices : to_all,
        [&](int rank) { return LaunchAll(rank, chosen(rank)); });
  print("ncclAllReduce", slices, [&](int rank) {
    Status status;
    for (int i = 0; i < count && status.ok(); ++i) {
      status = at(nccl_, rank)->Launch(at(rows_, rank)->tensor(), at(streams_, rank));
    }
    return status;
  });
}

TEST_P(GpuExchangeTimes, TimesAllReduces) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  nccl_.resize(static_cast<size_t>(ranks()));
  ForRanks([&](int rank) -> Status {
    BATON_ASSIGN_OR_RETURN(at(nccl_, rank), NcclAllReduce::Create(*ranks_->groups(rank).tensor));
    // The first use connects further, which cannot be captured.
    BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kBF16, 8192, kCols, kCols));
    for (const int64_t rows : kRowCounts) {
      BATON_RETURN_IF_ERROR(
          at(nccl_, rank)->Launch(mine->tensor().Rows(0, rows), at(streams_, rank)));
    }
    return ToStatus(cudaStreamSynchronize(at(streams_, rank)), "ncclAllReduce");
  });
  for (const int64_t rows : kRowCounts) PrintAllReduce(rows);
  ForRanks([&](int rank) {
    at(nccl_, rank).reset();
    return OkStatus();
  });
}

void GpuExchangeTimes::PrintAllGather(int64_t rows, int64_t cols) {
  const size_t bytes = static_cast<size_t>(rows * cols) * 2;
  const int count = CountFor(bytes);
  std::vector<int64_t> ends;
  for (int rank = 1; rank <= ranks(); ++rank) ends.push_back(cols * rank / ranks() / 8 * 8);
  ends.back() = cols;
  ForRanks(
      [&](int rank) { return Allocate(rank, DType::kBF16, rows, cols, cols, bytes).status(); });
  for (const bool slots : {true, false}) {
    const size_t slot = slots ? at(exchanges_, 0)->slot_bytes() : 0;
    const double sent = static_cast<double>(bytes) * (ranks() - 1) / ranks();
    Print("all-gather", slots ? "slots" : "NCCL", bytes, sent, count, [&](int rank) {
      return LaunchAll(rank,
                       List(rank, slot, at(rows_, rank)->scratch(), [&](ListedExchange& exchange) {
                         for (int i = 0; i < count; ++i)
                           exchange.AllGather(at(rows_, rank)->tensor(), ends);
                       }));
    });
  }
}

TEST_P(GpuExchangeTimes, TimesAllGathers) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  for (const int64_t rows : {1, 8, 32, 64, 128, 512, 1024, 2048, 8192}) {
    PrintAllGather(rows, kCols);
  }
  // The inner activations of a prompt.
  PrintAllGather(8192, 14336);
}

}  // namespace
}  // namespace baton::cuda

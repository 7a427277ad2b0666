#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/sampling_params.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/exchange/group_exchange.h"
#include "tests/gpu/rank_threads.h"

// Exchanges between two GPUs, by themselves and in CUDA graphs, against the host's arithmetic.
namespace baton::cuda {
namespace {

constexpr int kRanks = RankThreads::kRanks;
constexpr int kRuns = 7;

// A matrix on a rank's device, poisoned with NaN, and scratch memory for its exchange.
class Rows {
 public:
  Status Allocate(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    tensor_ = {.dtype = dtype, .rows = rows, .cols = cols, .stride = stride};
    BATON_RETURN_IF_ERROR(memory_.Reserve(bytes()));
    BATON_RETURN_IF_ERROR(scratch_.Reserve(kRanks * bytes()));
    tensor_.data = memory_.at();
    return Poison();
  }
  Status Poison() {
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(memory_.at(), 0xff, bytes()));
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(scratch_.at(), 0xff, kRanks * bytes()));
    return OkStatus();
  }
  size_t bytes() const {
    return static_cast<size_t>(tensor_.rows * tensor_.stride) * ShapeOf(tensor_.dtype).bytes;
  }
  // All numbers, gaps included.
  Status Write(const std::vector<float>& values) {
    std::vector<__nv_bfloat16> brains(values.begin(), values.end());
    const void* from = values.data();
    if (tensor_.dtype == DType::kBF16) from = brains.data();
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpy(memory_.at(), from, bytes(), cudaMemcpyHostToDevice));
    return OkStatus();
  }
  StatusOr<std::vector<float>> Read() const {
    const auto numbers = static_cast<size_t>(tensor_.rows * tensor_.stride);
    std::vector<std::byte> raw(bytes());
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(raw.data(), memory_.at(), bytes(), cudaMemcpyDeviceToHost));
    std::vector<float> values(numbers);
    for (size_t i = 0; i < numbers; ++i) {
      if (tensor_.dtype == DType::kBF16) {
        __nv_bfloat16 brain;
        std::memcpy(&brain, raw.data() + 2 * i, 2);
        values[i] = __bfloat162float(brain);
      } else {
        std::memcpy(&values[i], raw.data() + 4 * i, 4);
      }
    }
    return values;
  }
  const Tensor& tensor() const { return tensor_; }
  std::byte* scratch() const { return scratch_.at(); }

 private:
  Tensor tensor_;
  DeviceMemory memory_;
  DeviceMemory scratch_;
};

float Rounded(DType dtype, float value) {
  return dtype == DType::kBF16 ? __bfloat162float(__float2bfloat16(value)) : value;
}

std::vector<float> Random(DType dtype, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(count);
  for (float& value : values) value = Rounded(dtype, normal(random));
  return values;
}

// Checks what `rank` has after the ranks have added their rows: the sums of `parts`, with the signs
// of zeros, and in the gaps between the rows its own numbers. The first `nans` numbers are NaN. `c`
// has the type and the shape of the rows.
template <class Case>
void ExpectSums(const Case& c,
                const std::vector<std::vector<float>>& parts,
                int rank,
                const std::vector<float>& got,
                size_t nans) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (i < nans) {
      ASSERT_TRUE(std::isnan(got[i])) << "rank " << rank << " number " << i;
      continue;
    }
    const bool gap = static_cast<int64_t>(i) % c.stride >= c.cols;
    const float sum = Rounded(c.dtype, parts[0][i] + parts[1][i]);
    const float want = gap ? parts[static_cast<size_t>(rank)][i] : sum;
    ASSERT_EQ(got[i], want) << "rank " << rank << " number " << i;
    ASSERT_EQ(std::signbit(got[i]), std::signbit(want)) << "rank " << rank << " number " << i;
  }
}

class GpuExchange : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = RankThreads::Missing();
    if (!missing.empty()) GTEST_SKIP() << "exchanges between GPUs were NOT tested: " << missing;
  }

  void Open(bool pipeline) {
    ranks_ = std::make_unique<RankThreads>(pipeline);
    Expect(ranks_->Run([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(at(exchanges_, rank), GroupExchange::Create(ranks_->groups(rank)));
      BATON_CUDA_RETURN_IF_ERROR(
          cudaStreamCreateWithFlags(&at(streams_, rank), cudaStreamNonBlocking));
      return OkStatus();
    }));
  }

  void TearDown() override {
    if (ranks_ == nullptr) return;
    Expect(ranks_->Run([&](int rank) -> Status {
      at(rows_, rank).reset();
      at(exchanges_, rank).reset();
      BATON_CUDA_RETURN_IF_ERROR(cudaStreamDestroy(at(streams_, rank)));
      return OkStatus();
    }));
  }

  template <class T>
  static T& at(std::vector<T>& all, int rank) {
    return all[static_cast<size_t>(rank)];
  }
  static void Expect(const std::vector<Status>& results) {
    for (const Status& status : results) ASSERT_TRUE(status.ok()) << status;
  }

  // Launches the op, or a graph of it, and waits.
  Status Launch(int rank, const ExchangeOp& op, bool graph) {
    GroupExchange& exchange = *at(exchanges_, rank);
    cudaStream_t const stream = at(streams_, rank);
    if (!graph) {
      BATON_RETURN_IF_ERROR(exchange.Launch(op, stream));
      return ToStatus(cudaStreamSynchronize(stream), "an exchange");
    }
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const Status launched = exchange.Launch(op, stream);
    cudaGraph_t captured = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamEndCapture(stream, &captured));
    BATON_RETURN_IF_ERROR(launched);
    cudaGraphExec_t executable = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&executable, captured, 0));
    cudaGraphDestroy(captured);
    BATON_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(executable, stream));
    Status ended = ToStatus(cudaStreamSynchronize(stream), "an exchange in a graph");
    cudaGraphExecDestroy(executable);
    return ended;
  }

  // The least time of several launches of a graph of `count` ops.
  Status Time(int rank, ReduceOp op, bool slots, int count, float& milliseconds) {
    cudaStream_t const stream = at(streams_, rank);
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Status status;
    for (int i = 0; i < count && status.ok(); ++i) {
      if (slots) op.half = i % PeerSlots::kHalves;
      status = at(exchanges_, rank)->Launch(op, stream);
    }
    cudaGraph_t captured = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamEndCapture(stream, &captured));
    BATON_RETURN_IF_ERROR(status);
    cudaGraphExec_t executable = nullptr;
    BATON_CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&executable, captured, 0));
    cudaGraphDestroy(captured);
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

  std::unique_ptr<RankThreads> ranks_;
  std::vector<std::unique_ptr<GroupExchange>> exchanges_{kRanks};
  std::vector<cudaStream_t> streams_ = std::vector<cudaStream_t>(kRanks);
  std::vector<std::unique_ptr<Rows>> rows_{kRanks};
};

TEST_F(GpuExchange, AllReduceAddsInFloat32AndRoundsOnce) {
  Open(/*pipeline=*/false);
  struct Case {
    DType dtype;
    int64_t rows, cols, stride;
    bool two_shot;
  };
  const std::vector<Case> cases = {{DType::kBF16, 1, 4096, 4096, false},
                                   {DType::kBF16, 64, 4096, 4096, false},
                                   {DType::kBF16, 64, 4096, 4096, true},
                                   {DType::kBF16, 2048, 4096, 4096, true},
                                   {DType::kBF16, 7, 100, 112, false},
                                   {DType::kBF16, 5, 13, 16, false},
                                   {DType::kF32, 1, 4096, 4096, false},
                                   {DType::kF32, 33, 576, 576, false},
                                   {DType::kF32, 33, 576, 576, true},
                                   {DType::kF32, 9, 70, 80, false}};
  for (const Case& c : cases) {
    for (const bool graph : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << Name(c.dtype) << " " << c.rows << "x" << c.cols
                   << (c.two_shot ? " two-shot" : "") << (graph ? " in a graph" : ""));
      const auto count = static_cast<size_t>(c.rows * c.stride);
      std::vector<std::vector<float>> parts;
      for (int rank = 0; rank < kRanks; ++rank) {
        parts.push_back(Random(c.dtype, count, 17 * static_cast<uint32_t>(rank) + 3));
        // Only one rank has a number other than −0, as in an embedding.
        parts.back()[5] = rank == 1 ? 0.0f : -0.0f;
        parts.back()[6] = -0.0f;
      }
      std::vector<std::vector<float>> got(kRanks);
      Expect(ranks_->Run([&](int rank) -> Status {
        at(rows_, rank) = std::make_unique<Rows>();
        Rows& mine = *at(rows_, rank);
        BATON_RETURN_IF_ERROR(mine.Allocate(c.dtype, c.rows, c.cols, c.stride));
        BATON_RETURN_IF_ERROR(mine.Write(at(parts, rank)));
        const ReduceOp op = {
            .x = mine.tensor(), .ranks = kRanks, .parts = mine.scratch(), .two_shot = c.two_shot};
        BATON_RETURN_IF_ERROR(Launch(rank, op, graph));
        BATON_ASSIGN_OR_RETURN(at(got, rank), mine.Read());
        return OkStatus();
      }));
      for (int rank = 0; rank < kRanks; ++rank) {
        ExpectSums(c, parts, rank, at(got, rank), 0);
      }
    }
  }
}

// Every bit pattern may be pushed, also the one that marks an empty slot; sums of different sizes
// follow each other, and each half is used again and again.
TEST_F(GpuExchange, SumsThroughSlotsGiveTheSameBits) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  struct Case {
    DType dtype;
    int64_t rows, cols, stride;
  };
  const std::vector<Case> cases = {{DType::kBF16, 1, 4096, 4096},
                                   {DType::kBF16, 64, 4096, 4096},
                                   {DType::kF32, 3, 576, 592},
                                   {DType::kBF16, 4096, 4096, 4096},
                                   {DType::kBF16, 7, 96, 112},
                                   {DType::kF32, 1, 4, 4}};
  for (int round = 0; round < 12; ++round) {
    const Case& c = cases[static_cast<size_t>(round) % cases.size()];
    SCOPED_TRACE(testing::Message() << Name(c.dtype) << " " << c.rows << "x" << c.cols);
    const auto count = static_cast<size_t>(c.rows * c.stride);
    std::vector<std::vector<float>> parts;
    for (int rank = 0; rank < kRanks; ++rank) {
      parts.push_back(Random(c.dtype, count, 17 * static_cast<uint32_t>(rank + round) + 3));
      parts.back()[1] = rank == 1 ? 0.0f : -0.0f;
      parts.back()[2] = -0.0f;
    }
    std::vector<std::vector<float>> got(kRanks);
    Expect(ranks_->Run([&](int rank) -> Status {
      at(rows_, rank) = std::make_unique<Rows>();
      Rows& mine = *at(rows_, rank);
      BATON_RETURN_IF_ERROR(mine.Allocate(c.dtype, c.rows, c.cols, c.stride));
      BATON_RETURN_IF_ERROR(mine.Write(at(parts, rank)));
      // Number 0, and in bf16 its neighbour, get the bits of an empty slot.
      BATON_CUDA_RETURN_IF_ERROR(cudaMemset(mine.tensor().data, 0xff, 4));
      const ReduceOp op = {.x = mine.tensor(), .ranks = kRanks, .half = round % 2};
      BATON_RETURN_IF_ERROR(Launch(rank, op, /*graph=*/round % 3 == 0));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine.Read());
      return OkStatus();
    }));
    const size_t nans = c.dtype == DType::kBF16 ? 2 : 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      ExpectSums(c, parts, rank, at(got, rank), nans);
    }
  }
}

// All waits of a step of a long prompt end, one after the other: 64 exchanges of 64 MB.
TEST_F(GpuExchange, AnAbortEndsAllWaitsForSlots) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  baton::Time began;
  Expect(ranks_->Run([&](int rank) -> Status {
    if (rank == 1) return OkStatus();  // it never comes
    at(rows_, rank) = std::make_unique<Rows>();
    Rows& mine = *at(rows_, rank);
    BATON_RETURN_IF_ERROR(mine.Allocate(DType::kBF16, 8192, 4096, 4096));
    GroupExchange& exchange = *at(exchanges_, rank);
    for (int i = 0; i < 64; ++i) {
      BATON_RETURN_IF_ERROR(exchange.Launch(
          ReduceOp{.x = mine.tensor(), .ranks = kRanks, .half = i % 2}, at(streams_, rank)));
    }
    began = SteadyClock().Now();
    exchange.watch().Fail(MakeStatus(StatusCode::kUnavailable, "the other rank is gone"));
    return ToStatus(cudaStreamSynchronize(at(streams_, rank)), "an aborted sum");
  }));
  const Duration took = SteadyClock().Now() - began;
  EXPECT_LT(took, std::chrono::seconds(1)) << "a group must end within a second";
  std::printf("64 aborted sums of 64 MB ended after %.0f ms\n", ToMillis(took));
}

// Prints the time of an all-reduce in a graph: for comparison only, so that it cannot fail.
TEST_F(GpuExchange, TimesAllReduces) {
  constexpr int kOps = 50;
  Open(/*pipeline=*/false);
  for (const int64_t rows : {1, 8, 32, 64, 128, 256, 1024, 8192}) {
    for (const bool slots : {false, true}) {
      for (const bool gather_only : {true, false}) {
        // Without a reader, slots would stay full.
        if (slots && gather_only) continue;
        std::vector<float> milliseconds(kRanks);
        Expect(ranks_->Run([&](int rank) -> Status {
          at(rows_, rank) = std::make_unique<Rows>();
          Rows& mine = *at(rows_, rank);
          BATON_RETURN_IF_ERROR(mine.Allocate(DType::kBF16, rows, 4096, 4096));
          ReduceOp op = {.x = mine.tensor(),
                         .ranks = kRanks,
                         .parts = mine.scratch(),
                         .gather_only = gather_only};
          return Time(rank, op, slots, kOps, at(milliseconds, rank));
        }));
        std::printf("all-reduce of %lld KB through %s%s: %.2f us\n",
                    static_cast<long long>(rows) * 8,
                    slots ? "slots" : "NCCL",
                    gather_only ? ", without the sum" : "",
                    milliseconds[0] * 1e3 / kOps);
      }
    }
  }
}

TEST_F(GpuExchange, GathersColumns) {
  Open(/*pipeline=*/false);
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 300;
  constexpr int64_t kStride = 304;
  for (const int round : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const bool to_all = round % 2 != 0;
    const bool graph = round / 2 % 2 != 0;
    const int32_t half = round < 4 ? kThroughNccl : round % PeerSlots::kHalves;
    SCOPED_TRACE(round);
    {
      const auto whole = Random(DType::kF32, kRows * kStride, 11);
      std::vector<std::vector<float>> got(kRanks);
      Expect(ranks_->Run([&](int rank) -> Status {
        at(rows_, rank) = std::make_unique<Rows>();
        Rows& mine = *at(rows_, rank);
        BATON_RETURN_IF_ERROR(mine.Allocate(DType::kF32, kRows, kCols, kStride));
        std::vector<float> own = whole;
        for (size_t i = 0; i < own.size(); ++i) {
          const bool of_first = static_cast<int64_t>(i) % kStride < 128;
          if (of_first != (rank == 0)) own[i] = -1;
        }
        BATON_RETURN_IF_ERROR(mine.Write(own));
        const GatherColumnsOp op = {.whole = mine.tensor(),
                                    .ends = {128, kCols},
                                    .to_all = to_all,
                                    .half = half,
                                    .packed = mine.scratch()};
        BATON_RETURN_IF_ERROR(Launch(rank, op, graph));
        BATON_ASSIGN_OR_RETURN(at(got, rank), mine.Read());
        return OkStatus();
      }));
      for (size_t i = 0; i < whole.size(); ++i) {
        if (static_cast<int64_t>(i) % kStride >= kCols) continue;
        ASSERT_EQ(got[0][i], whole[i]) << i;
        const bool of_first = static_cast<int64_t>(i) % kStride < 128;
        ASSERT_EQ(got[1][i], to_all || !of_first ? whole[i] : -1.0f) << i;
      }
    }
  }
}

TEST_F(GpuExchange, SharesTokensAndMeetsAtBarriers) {
  Open(/*pipeline=*/false);
  for (const bool slots : {false, true, true}) {
    std::vector<std::vector<float>> got(kRanks);
    Expect(ranks_->Run([&](int rank) -> Status {
      at(rows_, rank) = std::make_unique<Rows>();
      Rows& mine = *at(rows_, rank);
      BATON_RETURN_IF_ERROR(mine.Allocate(DType::kF32, 1, 64, 64));
      BATON_RETURN_IF_ERROR(mine.Write(std::vector<float>(64, static_cast<float>(7 + rank))));
      auto* const tokens = reinterpret_cast<int32_t*>(mine.tensor().data);
      // The first token is kNoToken.
      if (rank == 0) BATON_CUDA_RETURN_IF_ERROR(cudaMemset(tokens, 0xff, sizeof(int32_t)));
      const BarrierOp barrier = {.half = slots ? 0 : kThroughNccl, .marks = mine.scratch()};
      const ShareTokensOp share = {.tokens = tokens, .count = 33, .half = slots ? 1 : kThroughNccl};
      BATON_RETURN_IF_ERROR(Launch(rank, barrier, true));
      BATON_RETURN_IF_ERROR(Launch(rank, share, true));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine.Read());
      return OkStatus();
    }));
    for (const auto& numbers : got) {
      EXPECT_EQ(std::bit_cast<int32_t>(numbers[0]), kNoToken);
    }
    for (size_t i = 1; i < 64; ++i) {
      EXPECT_EQ(got[0][i], 7.0f);
      EXPECT_EQ(got[1][i], i < 33 ? 7.0f : 8.0f);
    }
  }
}

TEST_F(GpuExchange, HandsTensorsToTheNextStage) {
  Open(/*pipeline=*/true);
  for (const int64_t stride : {int64_t{576}, int64_t{592}}) {
    for (const bool graph : {false, true}) {
      const auto sent = Random(DType::kF32, static_cast<size_t>(9 * stride), 5);
      std::vector<std::vector<float>> got(kRanks);
      Expect(ranks_->Run([&](int rank) -> Status {
        at(rows_, rank) = std::make_unique<Rows>();
        Rows& mine = *at(rows_, rank);
        BATON_RETURN_IF_ERROR(mine.Allocate(DType::kF32, 9, 576, stride));
        if (rank == 0) BATON_RETURN_IF_ERROR(mine.Write(sent));
        const StageOp op = {.x = mine.tensor(),
                            .stage = 1 - rank,
                            .send = rank == 0,
                            .packed = stride == 576 ? nullptr : mine.scratch()};
        BATON_RETURN_IF_ERROR(Launch(rank, op, graph));
        BATON_ASSIGN_OR_RETURN(at(got, rank), mine.Read());
        return OkStatus();
      }));
      for (size_t i = 0; i < sent.size(); ++i) {
        if (static_cast<int64_t>(i) % stride >= 576) continue;
        ASSERT_EQ(got[1][i], sent[i]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda

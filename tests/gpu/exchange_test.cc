#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "kernels/cuda/device/cuda_status.h"
#include "tests/gpu/exchange_fixture.h"

// Sums over GPUs, by themselves and in CUDA graphs, against the host's arithmetic.
namespace baton::cuda {
namespace {

class GpuExchangeSums : public GpuExchange {};
INSTANTIATE_TEST_SUITE_P(Ranks,
                         GpuExchangeSums,
                         testing::ValuesIn(RankThreads::Sizes()),
                         testing::PrintToStringParamName());

struct Case {
  DType dtype;
  int64_t rows, cols, stride;
  bool two_shot;

  Tensor shape() const { return {.dtype = dtype, .rows = rows, .cols = cols, .stride = stride}; }
  size_t bytes() const { return static_cast<size_t>(rows * cols) * ShapeOf(dtype).bytes; }
  std::string name() const {
    return fmt::format("{} {}x{}{}", Name(dtype), rows, cols, two_shot ? " two-shot" : "");
  }
  // The numbers of all ranks, gaps included. Some are −0 on all ranks but one, as in an embedding,
  // or on all.
  std::vector<std::vector<float>> Parts(int ranks, int seed) const {
    std::vector<std::vector<float>> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      parts.push_back(Random(
          dtype, static_cast<size_t>(rows * stride), 17 * static_cast<uint32_t>(rank + seed) + 3));
      parts.back()[2] = rank == 1 ? 0.0f : -0.0f;
      parts.back()[3] = -0.0f;
    }
    return parts;
  }
};

TEST_P(GpuExchangeSums, AllReduceAddsInFloat32AndRoundsOnce) {
  Open(/*pipeline=*/false);
  // 840 is a multiple of all numbers of ranks.
  const std::vector<Case> cases = {{DType::kBF16, 1, 4096, 4096, false},
                                   {DType::kBF16, 64, 4096, 4096, false},
                                   {DType::kBF16, 840, 64, 64, true},
                                   {DType::kBF16, 840, 4096, 4096, true},
                                   {DType::kBF16, 7, 100, 112, false},
                                   {DType::kBF16, 5, 13, 16, false},
                                   {DType::kF32, 1, 4096, 4096, false},
                                   {DType::kF32, 33, 576, 576, false},
                                   {DType::kF32, 840, 576, 576, true},
                                   {DType::kF32, 9, 70, 80, false}};
  for (const Case& c : cases) {
    for (const bool graph : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.name() << (graph ? " in a graph" : ""));
      const auto parts = c.Parts(ranks(), 0);
      std::vector<std::vector<float>> got(parts.size());
      ForRanks([&](int rank) -> Status {
        const size_t scratch = c.bytes() * static_cast<size_t>(ranks());
        BATON_ASSIGN_OR_RETURN(Rows* const mine,
                               Allocate(rank, c.dtype, c.rows, c.cols, c.stride, scratch));
        BATON_RETURN_IF_ERROR(mine->Write(at(parts, rank)));
        const ReduceOp op = {.x = mine->tensor(),
                             .ranks = ranks(),
                             .parts = mine->scratch(),
                             .two_shot = c.two_shot};
        BATON_RETURN_IF_ERROR(Launch(rank, {op}, graph));
        BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
        return OkStatus();
      });
      for (int rank = 0; rank < ranks(); ++rank) ExpectSums(c.shape(), parts, rank, at(got, rank));
    }
  }
}

// Every bit pattern may be pushed, also the one that marks an empty slot; sums of different kinds
// and sizes follow each other, and each slot buffer is used again and again.
TEST_P(GpuExchangeSums, SumsThroughSlotsGiveTheSameBits) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  const size_t slot = at(exchanges_, 0)->slot_bytes();
  // Slices of one vector, slices of unequal lengths, gaps, and the largest sum.
  const std::vector<Case> cases = {{DType::kBF16, 1, 4096, 4096, false},
                                   {DType::kF32, ranks(), 4, 4, true},
                                   {DType::kBF16, 64, 4096, 4096, false},
                                   {DType::kBF16, 61, 1000, 1000, true},
                                   {DType::kF32, 3, 576, 592, true},
                                   {DType::kF32, 3, 576, 592, false},
                                   {DType::kBF16, 4096, 4096, 4096, false},
                                   {DType::kBF16, 8192, 4096, 4096, true},
                                   {DType::kBF16, 7, 96, 112, true},
                                   {DType::kF32, 1, 4, 4, false},
                                   {DType::kF32, 2049, 1036, 1040, true}};
  int32_t slot_buffer = 0;
  for (int round = 0; round < 22; ++round) {
    const Case& c = cases[static_cast<size_t>(round) % cases.size()];
    if (c.bytes() > (c.two_shot ? TwoShotBytes(slot, ranks()) : slot)) continue;
    SCOPED_TRACE(c.name());
    const auto parts = c.Parts(ranks(), round);
    std::vector<std::vector<float>> got(parts.size());
    ForRanks([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, c.dtype, c.rows, c.cols, c.stride));
      BATON_RETURN_IF_ERROR(mine->Write(at(parts, rank)));
      // Number 0, and in bf16 its neighbour, get the bits of an empty slot.
      BATON_RETURN_IF_ERROR(Rows::Empty(mine->tensor().data));
      // The last numbers of the last row, which are in another slice, on one rank only.
      const Tensor last = mine->tensor().Rows(c.rows - 1, 1);
      const Tensor end = last.Columns(c.cols - 2, 2);
      if (rank == 1 && c.rows > 1) BATON_RETURN_IF_ERROR(Rows::Empty(end.data));
      const ReduceOp op = {.x = mine->tensor(),
                           .ranks = ranks(),
                           .slot_buffer = slot_buffer,
                           .two_shot = c.two_shot};
      BATON_RETURN_IF_ERROR(Launch(rank, {op}, /*graph=*/round % 3 == 0));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
      return OkStatus();
    });
    slot_buffer = 1 - slot_buffer;
    const bool brain = c.dtype == DType::kBF16;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<float>& mine = at(got, rank);
      if (c.rows > 1) {
        const auto end = static_cast<size_t>((c.rows - 1) * c.stride + c.cols);
        for (size_t i = end - 2; i < end - (brain ? 0 : 1); ++i) {
          EXPECT_TRUE(std::isnan(mine[i])) << i;
          mine[i] = SumOf(c.dtype, parts, i);
        }
      }
      ExpectSums(c.shape(), parts, rank, mine, brain ? 2 : 1);
    }
  }
}

// All waits of a step of a long prompt end, one after the other: 64 exchanges of 64 MB.
TEST_P(GpuExchangeSums, AnAbortEndsAllWaitsForSlots) {
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  std::vector<Duration> took(static_cast<size_t>(ranks()));
  ForRanks([&](int rank) -> Status {
    if (rank == 1) return OkStatus();  // it never comes
    BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kBF16, 8192, 4096, 4096));
    for (int i = 0; i < 64; ++i) {
      const ReduceOp op = {.x = mine->tensor(),
                           .ranks = ranks(),
                           .slot_buffer = i % PeerSlots::kSlotBuffers,
                           .two_shot = ranks() > 2};
      BATON_RETURN_IF_ERROR(LaunchAll(rank, {op}));
    }
    const baton::Time began = SteadyClock().Now();
    at(exchanges_, rank)
        ->watch()
        .Fail(MakeStatus(StatusCode::kUnavailable, "the other rank is gone"));
    Status ended = ToStatus(cudaStreamSynchronize(at(streams_, rank)), "an aborted sum");
    at(took, rank) = SteadyClock().Now() - began;
    return ended;
  });
  EXPECT_LT(took[0], std::chrono::seconds(1)) << "a group must end within a second";
  std::printf("64 aborted sums of 64 MB ended after %.0f ms\n", ToMillis(took[0]));
}

}  // namespace
}  // namespace baton::cuda

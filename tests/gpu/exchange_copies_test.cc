#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/sampling_params.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/rows/row_kernels.h"
#include "tests/gpu/exchange_fixture.h"

// Exchanges between GPUs that copy numbers, and steps of many exchanges.
namespace baton::cuda {
namespace {

class GpuExchangeCopies : public GpuExchange {};
INSTANTIATE_TEST_SUITE_P(Ranks,
                         GpuExchangeCopies,
                         testing::ValuesIn(RankThreads::Sizes()),
                         testing::PrintToStringParamName());

// Divides `cols` columns among the ranks. All ends but the last are multiples of `multiple`, plus
// `rest`.
std::vector<int64_t> Ends(int ranks, int64_t cols, int64_t multiple, int64_t rest) {
  std::vector<int64_t> ends;
  for (int rank = 1; rank < ranks; ++rank) {
    ends.push_back(cols * rank / ranks / multiple * multiple + rest);
  }
  ends.push_back(cols);
  return ends;
}

// The rank that has computed column `col`.
int OwnerOf(const std::vector<int64_t>& ends, int64_t col) {
  return static_cast<int>(std::ranges::upper_bound(ends, col) - ends.begin());
}

TEST_P(GpuExchangeCopies, GathersColumns) {
  Open(/*pipeline=*/false);
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 300;
  constexpr int64_t kStride = 304;
  // Columns that are whole vectors; columns that are not; a rank without columns.
  std::vector<std::vector<int64_t>> divisions = {Ends(ranks(), kCols, 4, 0),
                                                 Ends(ranks(), kCols, 1, 1)};
  divisions.push_back(divisions[0]);
  divisions.back()[0] = 0;
  const auto whole = Random(DType::kF32, kRows * kStride, 11);
  for (int round = 0; round < 24; ++round) {
    const auto& ends = divisions[static_cast<size_t>(round) % divisions.size()];
    const bool to_all = round / 3 % 2 != 0;
    const bool graph = round / 6 % 2 != 0;
    const bool slots = round >= 12;
    if (ends[0] == 0 && !slots) continue;
    SCOPED_TRACE(round);
    std::vector<std::vector<float>> got(static_cast<size_t>(ranks()));
    ForRanks([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(
          Rows* const mine,
          Allocate(rank, DType::kF32, kRows, kCols, kStride, sizeof(float) * whole.size()));
      std::vector<float> own = whole;
      for (size_t i = 0; i < own.size(); ++i) {
        if (OwnerOf(ends, static_cast<int64_t>(i) % kStride) != rank) own[i] = -1;
      }
      BATON_RETURN_IF_ERROR(mine->Write(own));
      const GatherColumnsOp op = {
          .whole = mine->tensor(),
          .ends = ends,
          .to_all = to_all,
          .slot_buffer = slots ? round % PeerSlots::kSlotBuffers : kThroughNccl,
          .packed = mine->scratch()};
      BATON_RETURN_IF_ERROR(Launch(rank, {op}, graph));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
      return OkStatus();
    });
    for (int rank = 0; rank < ranks(); ++rank) {
      for (size_t i = 0; i < whole.size(); ++i) {
        const int64_t col = static_cast<int64_t>(i) % kStride;
        const bool has = col < kCols && (to_all || rank == 0 || OwnerOf(ends, col) == rank);
        ASSERT_EQ(at(got, rank)[i], has ? whole[i] : -1.0f) << "rank " << rank << " number " << i;
      }
    }
  }
}

// An exchange that computes silu · up has the bits of a separate op and an exchange.
TEST_P(GpuExchangeCopies, ComputesSiluMul) {
  Open(/*pipeline=*/false);
  for (const int64_t rows : {1, 5, 300}) {
    SCOPED_TRACE(rows);
    const int64_t cols = 1000 * int64_t{8};
    const std::vector<int64_t> ends = Ends(ranks(), cols, 8, 0);
    std::vector<std::vector<float>> apart(static_cast<size_t>(ranks()));
    std::vector<std::vector<float>> fused = apart;
    for (const bool computes : {false, true}) {
      ForRanks([&](int rank) -> Status {
        const int64_t first = rank == 0 ? 0 : at(ends, rank - 1);
        const int64_t own = at(ends, rank) - first;
        Rows gate_up;
        BATON_RETURN_IF_ERROR(gate_up.Allocate(DType::kBF16, rows, 2 * own, 2 * own, 0));
        BATON_RETURN_IF_ERROR(gate_up.Write(Random(
            DType::kBF16, static_cast<size_t>(rows * 2 * own), static_cast<uint32_t>(rank))));
        BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kBF16, rows, cols, cols));
        GatherColumnsOp op = {
            .whole = mine->tensor(), .ends = ends, .to_all = true, .slot_buffer = computes ? 1 : 0};
        if (computes) {
          op.mine = gate_up.tensor();
          op.silu_mul = true;
        } else {
          BATON_CUDA_RETURN_IF_ERROR(LaunchSiluMul(
              gate_up.tensor(), mine->tensor().Columns(first, own), at(streams_, rank)));
        }
        BATON_RETURN_IF_ERROR(Launch(rank, {op}, false));
        BATON_ASSIGN_OR_RETURN(at(computes ? fused : apart, rank), mine->Read());
        return OkStatus();
      });
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      EXPECT_EQ(at(fused, rank), at(apart, rank)) << "rank " << rank;
      EXPECT_EQ(at(fused, rank), at(fused, 0)) << "rank " << rank;
    }
  }
}

TEST_P(GpuExchangeCopies, SharesTokensAndMeetsAtBarriers) {
  Open(/*pipeline=*/false);
  for (const bool slots : {false, true, true}) {
    std::vector<std::vector<float>> got(static_cast<size_t>(ranks()));
    ForRanks([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(
          Rows* const mine,
          Allocate(rank, DType::kF32, 1, 64, 64, kFlagBytes * static_cast<size_t>(ranks())));
      BATON_RETURN_IF_ERROR(mine->Write(std::vector<float>(64, static_cast<float>(7 + rank))));
      auto* const tokens = reinterpret_cast<int32_t*>(mine->tensor().data);
      // The first token is kNoToken.
      if (rank == 0) BATON_RETURN_IF_ERROR(Rows::Empty(mine->tensor().data));
      const BarrierOp barrier = {.slot_buffer = slots ? 0 : kThroughNccl, .flags = mine->scratch()};
      const ShareTokensOp share = {
          .tokens = tokens, .count = 33, .slot_buffer = slots ? 1 : kThroughNccl};
      BATON_RETURN_IF_ERROR(Launch(rank, {barrier}, true));
      BATON_RETURN_IF_ERROR(Launch(rank, {share}, true));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
      return OkStatus();
    });
    for (int rank = 0; rank < ranks(); ++rank) {
      EXPECT_EQ(std::bit_cast<int32_t>(at(got, rank)[0]), kNoToken);
      for (size_t i = 1; i < 64; ++i) {
        EXPECT_EQ(at(got, rank)[i], static_cast<float>(i < 33 ? 7 : 7 + rank)) << i;
      }
    }
  }
}

// An exchange of a step, on numbers of its own in the memory of each rank.
struct Listed {
  enum Kind { kReduce, kGather, kGatherToFirst, kBarrier } kind = kReduce;
  size_t first = 0;  // number
  Tensor shape = {};
  std::vector<int64_t> ends = {};

  Tensor On(std::byte* memory) const {
    Tensor tensor = shape;
    tensor.data = memory + first * sizeof(float);
    return tensor;
  }
  void List(ListedExchange& exchange, std::byte* memory) const {
    if (kind == kReduce) exchange.AllReduce(On(memory));
    if (kind == kGather) exchange.AllGather(On(memory), ends);
    if (kind == kGatherToFirst) exchange.GatherToFirst(On(memory), ends);
    if (kind == kBarrier) exchange.Barrier();
  }
  // Does the same to the numbers of all ranks.
  void Run(std::vector<std::vector<float>>& ranks) const {
    for (int64_t i = 0; i < (kind == kBarrier ? 0 : shape.rows * shape.cols); ++i) {
      const int64_t col = i % shape.cols;
      const size_t place = first + static_cast<size_t>(i / shape.cols * shape.stride + col);
      const float sum = SumOf(DType::kF32, ranks, place);
      const float own = kind == kReduce ? 0 : ranks[static_cast<size_t>(OwnerOf(ends, col))][place];
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        if (kind == kReduce) {
          ranks[rank][place] = sum;
        } else if (kind == kGather || rank == 0) {
          ranks[rank][place] = own;
        }
      }
    }
  }
};

// Steps of exchanges of all kinds and many sizes, which follow each other without a wait of the
// host. The slots are said to be small, so that exchanges are listed as several ops.
TEST_P(GpuExchangeCopies, StepsOfManyExchangesGiveWhatTheHostComputes) {
  constexpr size_t kSlotBytes = size_t{16} << 10;
  constexpr int kSteps = 3;
  constexpr int32_t kTokens = 33;
  Open(/*pipeline=*/false);
  ASSERT_NE(at(exchanges_, 0)->peers(), nullptr) << at(exchanges_, 0)->description();
  std::mt19937 random(5);
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random()) % most; };
  std::vector<Listed> step;
  size_t numbers = 64;  // the tokens come first
  for (int i = 0; i < 60; ++i) {
    Listed one = {.kind = static_cast<Listed::Kind>(below(4)), .first = numbers};
    const bool large = i % 20 == 7;
    // Every eighth exchange has rows that are no whole vectors.
    const int64_t cols =
        4 * (large ? 160 : 2 * int64_t{ranks()} + below(60)) + (i % 8 == 3 ? 1 : 0);
    const int64_t rows = large ? 512 : 1 + below(40);
    if (large) one.kind = Listed::kReduce;
    const int64_t stride = cols + below(2) * 4;
    one.shape = {.dtype = DType::kF32, .rows = rows, .cols = cols, .stride = stride};
    one.ends = below(2) == 0 ? Ends(ranks(), cols, 4, 0) : Ends(ranks(), cols, 1, 1);
    numbers += static_cast<size_t>(rows * stride + 3) / 4 * 4;
    step.push_back(one);
  }
  for (const bool graph : {false, true}) {
    SCOPED_TRACE(graph);
    std::vector<std::vector<float>> want;
    for (int rank = 0; rank < ranks(); ++rank) {
      want.push_back(Random(DType::kF32, numbers, static_cast<uint32_t>(rank)));
    }
    std::vector<std::vector<float>> got(want.size());
    ForRanks([&](int rank) -> Status {
      // The largest sum through NCCL has the parts of all ranks.
      const size_t scratch = sizeof(float) * numbers * static_cast<size_t>(ranks());
      const auto cols = static_cast<int64_t>(numbers);
      BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kF32, 1, cols, cols, scratch));
      BATON_RETURN_IF_ERROR(mine->Write(at(want, rank)));
      std::byte* const memory = mine->tensor().data;
      const Ops once = List(
          rank,
          kSlotBytes,
          mine->scratch(),
          [&](ListedExchange& exchange) {
            for (const Listed& one : step) one.List(exchange, memory);
          },
          reinterpret_cast<int32_t*>(memory),
          kTokens);
      Ops ops;
      for (int i = 0; i < kSteps; ++i) ops.insert(ops.end(), once.begin(), once.end());
      BATON_RETURN_IF_ERROR(Launch(rank, ops, graph));
      BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
      return OkStatus();
    });
    for (int i = 0; i < kSteps; ++i) {
      for (const Listed& one : step) one.Run(want);
    }
    for (auto& mine : want) std::copy_n(want[0].begin(), kTokens, mine.begin());
    for (int rank = 0; rank < ranks(); ++rank) {
      for (size_t i = 0; i < numbers; ++i) {
        ASSERT_EQ(at(got, rank)[i], at(want, rank)[i]) << "rank " << rank << " number " << i;
      }
    }
  }
}

// As stages that cannot reach each other's memory do. GpuStages tests the others.
TEST_P(GpuExchangeCopies, HandsTensorsToTheNextStageThroughNccl) {
  Open(/*pipeline=*/true, /*stage_slots=*/false);
  for (const int64_t stride : {int64_t{576}, int64_t{592}}) {
    for (const bool graph : {false, true}) {
      const auto sent = Random(DType::kF32, static_cast<size_t>(9 * stride), 5);
      std::vector<std::vector<float>> got(static_cast<size_t>(ranks()));
      ForRanks([&](int rank) -> Status {
        BATON_ASSIGN_OR_RETURN(
            Rows* const mine,
            Allocate(rank, DType::kF32, 9, 576, stride, sizeof(float) * sent.size()));
        if (rank == 0) BATON_RETURN_IF_ERROR(mine->Write(sent));
        std::byte* const packed = stride == 576 ? nullptr : mine->scratch();
        Ops ops;
        if (rank > 0) {
          ops.emplace_back(
              StageOp{.x = mine->tensor(), .stage = rank - 1, .send = false, .packed = packed});
        }
        if (rank + 1 < ranks()) {
          ops.emplace_back(
              StageOp{.x = mine->tensor(), .stage = rank + 1, .send = true, .packed = packed});
        }
        BATON_RETURN_IF_ERROR(Launch(rank, ops, graph));
        BATON_ASSIGN_OR_RETURN(at(got, rank), mine->Read());
        return OkStatus();
      });
      for (int rank = 1; rank < ranks(); ++rank) {
        for (size_t i = 0; i < sent.size(); ++i) {
          if (static_cast<int64_t>(i) % stride >= 576) continue;
          ASSERT_EQ(at(got, rank)[i], sent[i]) << "rank " << rank << " number " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda

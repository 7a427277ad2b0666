#include <cmath>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

namespace baton::parity {
namespace {

using Numbers = std::vector<float>;

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 61;

// Uneven columns of the ranks; the last rank has all that remain.
std::vector<int64_t> EndsOf(const RankPlace& place) {
  std::vector<int64_t> ends;
  for (int64_t rank = 1; rank <= place.tensor_parallel; ++rank) ends.push_back(rank * rank);
  ends.back() = kCols;
  return ends;
}

// Runs one exchange of a tensor in a step. Row r, column c of rank k begins as values[k][r, c].
Numbers Exchanged(Ops& ops,
                  DType dtype,
                  const Numbers& values,
                  const std::function<void(Exchange&, const Tensor&)>& body) {
  DeviceTensor x(ops, dtype, kRows, kCols);
  x.Write(values);
  InStep(ops, [&] { body(*ops.exchange(), x.view()); });
  return x.Read();
}

Numbers ValuesOf(const Ops& ops, int32_t rank) {
  return RandomActivations(ops, kRows * kCols, 200 + static_cast<uint64_t>(rank));
}

// The rank whose column `col` is.
int32_t OwnerOf(const std::vector<int64_t>& ends, int64_t col) {
  int32_t rank = 0;
  while (ends[static_cast<size_t>(rank)] <= col) ++rank;
  return rank;
}

// Every rank's columns hold its own numbers.
void CheckGathered(Ops& ops, const Numbers& got, const std::vector<int64_t>& ends) {
  for (size_t i = 0; i < got.size(); ++i) {
    const int32_t owner = OwnerOf(ends, static_cast<int64_t>(i) % kCols);
    ASSERT_EQ(got[i], ValuesOf(ops, owner)[i]) << "number " << i << " of rank " << owner;
  }
}

void CheckAllGather(Ops& ops, DType dtype) {
  const RankPlace& place = ops.exchange()->place();
  const std::vector<int64_t> ends = EndsOf(place);
  const Numbers got =
      Exchanged(ops, dtype, ValuesOf(ops, place.tensor_rank), [&](Exchange& exchange, Tensor x) {
        exchange.AllGather(x, ends);
      });
  CheckGathered(ops, got, ends);
}

void CheckGatherToFirst(Ops& ops) {
  const RankPlace& place = ops.exchange()->place();
  const std::vector<int64_t> ends = EndsOf(place);
  const Numbers mine = ValuesOf(ops, place.tensor_rank);
  const Numbers got = Exchanged(ops, DType::kF32, mine, [&](Exchange& exchange, Tensor x) {
    exchange.GatherToFirst(x, ends);
  });
  if (place.tensor_rank == 0) return CheckGathered(ops, got, ends);
  // Another rank keeps its own columns; the rest is undefined.
  for (size_t i = 0; i < got.size(); ++i) {
    const int32_t owner = OwnerOf(ends, static_cast<int64_t>(i) % kCols);
    if (owner != place.tensor_rank) continue;
    ASSERT_EQ(got[i], mine[i]) << "number " << i;
  }
}

void CheckAllReduce(Ops& ops, const Tolerance& tolerance, DType dtype) {
  const RankPlace& place = ops.exchange()->place();
  const Numbers got =
      Exchanged(ops, dtype, ValuesOf(ops, place.tensor_rank), [](Exchange& exchange, Tensor x) {
        exchange.AllReduce(x);
      });
  std::vector<double> want(got.size());
  for (int32_t rank = 0; rank < place.tensor_parallel; ++rank) {
    const Numbers values = ValuesOf(ops, rank);
    for (size_t i = 0; i < want.size(); ++i) want[i] += values[i];
  }
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], (1e-6 + 2 * tolerance.stored) * (1 + std::fabs(want[i])));
  }
}

// A number that is −0 on all ranks but one keeps its bits, those of −0 included.
void CheckSumOfOne(Ops& ops) {
  const RankPlace& place = ops.exchange()->place();
  Numbers values(kRows * kCols, -0.0f);
  const auto owner = [&](size_t i) { return static_cast<int32_t>(i) % place.tensor_parallel; };
  const Numbers all = RandomFloats(values.size(), 9);
  for (size_t i = 0; i < values.size(); ++i) {
    if (owner(i) == place.tensor_rank && i % 7 != 0) values[i] = i % 11 == 0 ? 0.0f : all[i];
  }
  const Numbers got = Exchanged(
      ops, DType::kF32, values, [](Exchange& exchange, Tensor x) { exchange.AllReduce(x); });
  for (size_t i = 0; i < got.size(); ++i) {
    const float want = i % 7 == 0 ? -0.0f : i % 11 == 0 ? 0.0f : all[i];
    ASSERT_EQ(got[i], want) << i;
    ASSERT_EQ(std::signbit(got[i]), std::signbit(want)) << i;
  }
}

// Every stage sends to the next one, and the last one to the first.
void CheckStages(Ops& ops) {
  const RankPlace& place = ops.exchange()->place();
  if (place.pipeline_parallel == 1) return;
  const int32_t stages = place.pipeline_parallel;
  DeviceTensor out(ops, DType::kF32, kRows, kCols);
  out.Write(ValuesOf(ops, place.stage));
  const DeviceTensor in(ops, DType::kF32, kRows, kCols);
  InStep(ops, [&] {
    Exchange& exchange = *ops.exchange();
    const int32_t next = (place.stage + 1) % stages;
    const int32_t before = (place.stage + stages - 1) % stages;
    if (place.stage == 0) exchange.SendToStage(out.view(), next);
    exchange.ReceiveFromStage(in.view(), before);
    if (place.stage != 0) exchange.SendToStage(out.view(), next);
  });
  EXPECT_EQ(in.Read(), ValuesOf(ops, (place.stage + stages - 1) % stages));
}

void CheckBarrier(Ops& ops) {
  for (int i = 0; i < 3; ++i) InStep(ops, [&] { ops.exchange()->Barrier(); });
}

// A table of rows 20 … 69: the rows of other tokens become −0.
void CheckEmbedPart(Ops& ops) {
  const HostWeights table = HeldBy(ops, RandomWeights(DType::kF32, 50, 64, 52));
  const HostMatrix host = table.matrix();
  auto matrix = ops.LoadMatrix({&host, 1});
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  History history(ops, {1, 1, 8}, DType::kF32, 16, {{0, 5}});
  StepPlan plan = history.LastStep();
  plan.tokens = {20, 19, 69, 70, 0};
  DeviceTensor out(ops, DType::kF32, 5, 64);
  out.Write(std::vector<float>(size_t{5} * 64, 3.0f));
  ASSERT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
  ops.Embed(**matrix, 20, out.view());
  ASSERT_TRUE(ops.EndStep().ok());
  const auto got = out.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    const TokenId token = plan.tokens[i / 64];
    if (token < 20 || token >= 70) {
      ASSERT_TRUE(got[i] == 0 && std::signbit(got[i])) << "token " << token;
    } else {
      ASSERT_EQ(got[i], table.values[static_cast<size_t>(token - 20) * 64 + i % 64]);
    }
  }
}

}  // namespace

std::vector<Case> ExchangeCases() {
  return {
      {"AllGather",
       [](Ops& ops, const Tolerance&) { CheckAllGather(ops, ops.activation_dtype()); }},
      {"AllGather_Residual", [](Ops& ops, const Tolerance&) { CheckAllGather(ops, DType::kF32); }},
      {"GatherToFirst", [](Ops& ops, const Tolerance&) { CheckGatherToFirst(ops); }},
      {"AllReduce",
       [](Ops& ops, const Tolerance& tolerance) {
         CheckAllReduce(ops, tolerance, ops.activation_dtype());
       }},
      {"AllReduce_Residual",
       [](Ops& ops, const Tolerance& tolerance) { CheckAllReduce(ops, tolerance, DType::kF32); }},
      {"AllReduce_OfOne", [](Ops& ops, const Tolerance&) { CheckSumOfOne(ops); }},
      {"Stages", [](Ops& ops, const Tolerance&) { CheckStages(ops); }},
      {"Barrier", [](Ops& ops, const Tolerance&) { CheckBarrier(ops); }},
      {"Embed_Part", [](Ops& ops, const Tolerance&) { CheckEmbedPart(ops); }},
  };
}

}  // namespace baton::parity

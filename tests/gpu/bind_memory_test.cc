#include "kernels/cuda/graph/bind_memory.h"

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/graph/op_places.h"
#include "tests/gpu/small_ops.h"

// Which memory the ops of a step use after BindMemory.
namespace baton::cuda {
namespace {

constexpr int64_t kRows = SmallOps::kRows;
constexpr int64_t kCols = SmallOps::kCols;
constexpr size_t kBytes = kRows * kCols * 2;  // of a value in bf16
static_assert(kBytes < kPlanAlignment);

class BindMemoryTest : public testing::Test {
 protected:
  Tensor Value(DType dtype = DType::kBF16, ValueReach reach = ValueReach::kStep) {
    const ValueUse use = {.dtype = dtype, .reach = reach, .rows = kRows, .cols = kCols};
    return space_.Place({&use, 1}).front();
  }
  StepMemory Bind(std::vector<StepOp>& ops) { return BindMemory(ops, space_, memory_.data()); }
  size_t At(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - memory_.data());
  }
  static const GemmProblem& Problem(const StepOp& op) { return std::get<MatMulOp>(op).problem; }

  alignas(256) std::array<std::byte, 4096> memory_ = {};
  ValueSpace space_{memory_.data()};
};

TEST_F(BindMemoryTest, ValuesShareMemoryWhenTheyAreNotNeededTogether) {
  const Tensor a = Value();
  const Tensor b = Value();
  const Tensor c = Value();
  std::vector<StepOp> ops = {SmallOps::Gemm(a, b), SmallOps::Gemm(b, c), SmallOps::Gemm(c, c)};
  const StepMemory needed = Bind(ops);
  EXPECT_EQ(needed.bytes, 2 * kPlanAlignment);
  EXPECT_EQ(needed.in_use, 2 * kPlanAlignment);
  EXPECT_EQ(Problem(ops[0]).out, Problem(ops[1]).x);
  EXPECT_EQ(Problem(ops[1]).out, Problem(ops[2]).x);
  EXPECT_EQ(Problem(ops[0]).x, Problem(ops[1]).out);
  EXPECT_NE(Problem(ops[0]).x, Problem(ops[0]).out);
}

TEST_F(BindMemoryTest, PartsOfAValueStayWhereTheyAreInIt) {
  const Tensor value = Value();
  const Tensor other = Value();
  const Tensor part = value.Rows(1, 2).Columns(8, 8);
  std::vector<StepOp> ops = {SmallOps::Gemm(other, value), SmallOps::Gemm(part, other)};
  Bind(ops);
  EXPECT_EQ(At(Problem(ops[1]).x) - At(Problem(ops[0]).out),
            static_cast<size_t>(part.data - value.data));
}

TEST_F(BindMemoryTest, OtherMemoryIsLeftAlone) {
  SmallOps real;
  const Tensor weights = real.Matrix(DType::kBF16);
  std::vector<StepOp> ops = {SmallOps::Gemm(weights, Value())};
  Bind(ops);
  EXPECT_EQ(Problem(ops[0]).x, weights.data);
}

TEST_F(BindMemoryTest, AValueThatIsLeftOutTakesNoMemory) {
  const Tensor used = Value();
  Value();
  NormOp norm = SmallOps::Norm(Value(DType::kF32), NoInput{}, Value());
  norm.out.data = nullptr;
  norm.fp8_out = Fp8Rows::At(space_.Scratch(Fp8Rows::Bytes(kRows, kCols)), kRows, kCols);
  std::vector<StepOp> ops = {norm, SmallOps::Gemm(norm.fp8_out, used)};
  EXPECT_EQ(Bind(ops).bytes, 3 * kPlanAlignment) << "numbers, scales, and residual or result";
  EXPECT_EQ(std::get<NormOp>(ops[0]).out.data, nullptr);
}

TEST_F(BindMemoryTest, ResultsStayAndTheirMemoryIsUsedBefore) {
  const Tensor result = Value(DType::kBF16, ValueReach::kResult);
  EXPECT_EQ(result.data, memory_.data());
  const Tensor a = Value();
  const Tensor b = Value();
  std::vector<StepOp> ops = {SmallOps::Gemm(a, a), SmallOps::Gemm(a, b), SmallOps::Gemm(b, result)};
  EXPECT_EQ(Bind(ops).bytes, 2 * kPlanAlignment);
  EXPECT_EQ(Problem(ops[2]).out, memory_.data());
  EXPECT_EQ(Problem(ops[0]).x, memory_.data());
}

TEST_F(BindMemoryTest, AResultIsKeptUntilTheEndOfTheStep) {
  const Tensor result = Value(DType::kBF16, ValueReach::kResult);
  const Tensor a = Value();
  std::vector<StepOp> ops = {SmallOps::Gemm(a, result), SmallOps::Gemm(a, a)};
  Bind(ops);
  EXPECT_NE(Problem(ops[1]).x, memory_.data());
}

TEST_F(BindMemoryTest, NothingElseIsWhereOtherStepsKeepResults) {
  Value(DType::kBF16, ValueReach::kAlways);
  const Tensor a = Value();
  std::vector<StepOp> ops = {SmallOps::Gemm(a, a)};
  EXPECT_EQ(Bind(ops).bytes, 2 * kPlanAlignment);
  EXPECT_EQ(At(Problem(ops[0]).x), kPlanAlignment);
}

TEST_F(BindMemoryTest, WhatACopyEngineReadsIsKeptUntilItHasRead) {
  const Tensor sent = Value();
  const Tensor a = Value();
  const Tensor b = Value();
  std::array<std::byte, kBytes> at_peer = {};
  const PutOp put = {.puts = {{{sent.data, at_peer.data(), kBytes}, 1}}, .put_buffer = 3};
  const std::vector<StepOp> before = {SmallOps::Gemm(sent, sent), ExchangeOp(put)};
  std::vector<StepOp> ops = before;
  ops.insert(ops.end(), {SmallOps::Gemm(a, a), ExchangeOp(AwaitPutOp{.put_buffer = 3})});
  ops.emplace_back(SmallOps::Gemm(b, b));
  Bind(ops);
  EXPECT_NE(Problem(ops[2]).x, Problem(ops[0]).x) << "the copy still reads";
  EXPECT_EQ(Problem(ops[4]).x, Problem(ops[0]).x) << "the copy has ended";
  EXPECT_EQ(std::get<PutOp>(std::get<ExchangeOp>(ops[1])).puts[0].copy.to, at_peer.data());

  ops = before;
  ops.emplace_back(SmallOps::Gemm(a, a));
  Bind(ops);
  EXPECT_NE(Problem(ops[2]).x, Problem(ops[0]).x) << "nothing awaits the copy in this step";
}

TEST_F(BindMemoryTest, OffsetsToMemoryElsewhereFollow) {
  const Tensor mine = Value();
  std::array<std::byte, 1024> received = {};
  const auto elements = [](const std::byte* from, const std::byte* to) { return (to - from) / 2; };
  PartsInput parts = {.first = mine, .parts = 3};
  parts.offsets[1] = elements(mine.data, received.data() + 512);
  parts.offsets[2] = kCols;  // in the same memory
  std::vector<StepOp> ops = {SmallOps::Norm(Value(DType::kF32), parts, Value())};
  Bind(ops);
  const auto& bound = std::get<PartsInput>(std::get<NormOp>(ops[0]).input);
  EXPECT_EQ(bound.offsets[0], 0);
  EXPECT_EQ(bound.first.data + bound.offsets[1] * 2, received.data() + 512);
  EXPECT_EQ(bound.offsets[2], kCols);
}

TEST_F(BindMemoryTest, ScratchMemoryIsBoundAsAWhole) {
  const Tensor value = Value();
  ExpertsOp experts = {.x = value, .experts = {}, .out = {}};
  experts.experts.scratch = space_.Scratch(1000);
  std::vector<StepOp> ops = {experts};
  EXPECT_EQ(Bind(ops).bytes, 1024 + kPlanAlignment);
  EXPECT_EQ(At(std::get<ExpertsOp>(ops[0]).experts.scratch), 0u);
}

// An op that another alternative of FamilyOp left out would keep an address that no memory has.
TEST_F(BindMemoryTest, OpsOfSomeFamiliesGetMemory) {
  const Tensor a = Value();
  const Tensor b = Value();
  const Tensor residual = Value(DType::kF32);
  const std::vector<FamilyOp> family = {ScaleOp{residual, 2},
                                        LayerNormOp{.x = residual, .out = a},
                                        ActivateOp{a, Activation::kGelu},
                                        MultiplyOp{b, a},
                                        SoftCapOp{residual, 3},
                                        SigmoidGateOp{a, b},
                                        HeadSquaresOp{.qkv = a, .out = residual},
                                        ProjectionNormOp{.qkv = a, .squares = residual},
                                        HeadLayerNormOp{.qkv = b},
                                        BiasOp{.x = residual},
                                        DotOp{.x = a, .out = b}};
  ASSERT_EQ(family.size(), std::variant_size_v<FamilyOp>);
  std::vector<StepOp> ops(family.begin(), family.end());
  EXPECT_EQ(Bind(ops).bytes, 3 * kPlanAlignment);
  const auto op = [&]<class Op>(std::in_place_type_t<Op>, size_t at) -> const Op& {
    return std::get<Op>(std::get<FamilyOp>(ops[at]));
  };
  EXPECT_EQ(op(std::in_place_type<LayerNormOp>, 1).out.data,
            op(std::in_place_type<ProjectionNormOp>, 7).qkv.data);
  EXPECT_EQ(op(std::in_place_type<MultiplyOp>, 3).x.data,
            op(std::in_place_type<HeadLayerNormOp>, 8).qkv.data);
}

// The same of latents and of recurrent layers.
TEST_F(BindMemoryTest, OpsOfLatentsAndStatesGetMemory) {
  const Tensor a = Value();
  const Tensor b = Value();
  const Tensor c = Value(DType::kF32);
  auto* const angles = reinterpret_cast<float2*>(space_.Scratch(64));
  const LatentAngles turned = {.at = angles, .pairs = 2};
  const std::vector<LatentOp> latent = {
      WriteLatentOp{.kv = a, .angles = turned},
      HeadGemmOp{.x = a, .out = b, .weights = nullptr, .angles = turned},
      AttendLatentsOp{.q = b, .work = {}, .plan = nullptr, .out = a}};
  ASSERT_EQ(latent.size(), std::variant_size_v<LatentOp>);
  const std::vector<RecurrentOp> recurrent = {
      ConvolveOp{.x = a, .layer = {}, .out = c},
      UpdateStatesOp{.convolved = c, .x = a, .gates = b, .layer = {}, .out = c},
      FinishRowsOp{.outputs = c, .convolved = c, .x = a, .layer = {}, .out = b},
      DecodeRowsOp{.x = a, .gates = b, .layer = {}, .out = a},
      ChunkRowsOp{.x = a, .gates = b, .layer = {}, .memory = c, .out = a},
      ScanOp{.v = a, .gates = b, .k = a, .q = b, .layer = {}, .out = a}};
  ASSERT_EQ(recurrent.size(), std::variant_size_v<RecurrentOp>);
  std::vector<StepOp> ops = {
      AnglesOp{.inverse_frequencies = nullptr, .pairs = 2, .angles = angles}};
  ops.insert(ops.end(), latent.begin(), latent.end());
  ops.insert(ops.end(), recurrent.begin(), recurrent.end());
  Bind(ops);
  for (const StepOp& op : ops) {
    std::vector<Place> places;
    AppendPlaces(op, places, places);
    EXPECT_FALSE(places.empty()) << op.index();
    for (const Place& place : places) EXPECT_EQ(space_.Find(place.data), nullptr) << op.index();
  }
}

TEST_F(BindMemoryTest, EqualStepsGetEqualAddresses) {
  std::vector<const std::byte*> first;
  for (int step = 0; step < 2; ++step) {
    space_.BeginStep();
    const std::vector<const std::byte*> got = {space_.Scratch(100), space_.Scratch(9000)};
    if (step == 0) first = got;
    EXPECT_EQ(got, first);
    EXPECT_EQ(space_.Find(got[0] + 99)->begin, got[0]);
    EXPECT_EQ(space_.Find(got[1] + 8999)->begin, got[1]);
  }
}

}  // namespace
}  // namespace baton::cuda

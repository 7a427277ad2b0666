#include "kernels/cuda/graph/passes.h"

#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/small_ops.h"

// Each pass on a few ops: what it fuses, and what it must leave as it is.
namespace baton::cuda {
namespace {

using Ops = std::vector<StepOp>;

// Our own kernels compute everything.
class AllFused final : public GemmFusions {
 public:
  bool deterministic() const override { return false; }
  bool SupportsFused(const GemmProblem& /*problem*/) const override { return true; }
  bool AppliesScales(const GemmProblem& problem) const override {
    return problem.x_dtype == DType::kFp8;
  }
};

Ops After(const std::function<void(OpGraph&)>& pass, Ops ops) {
  OpGraph graph(std::move(ops));
  pass(graph);
  return graph.Take();
}
Ops After(void (*pass)(OpGraph&, const GemmFusions&), Ops ops) {
  return After([pass](OpGraph& graph) { pass(graph, AllFused()); }, std::move(ops));
}

class PassesTest : public testing::Test {
 protected:
  Tensor Bf16(int64_t cols = SmallOps::kCols) {
    return ops_.Matrix(DType::kBF16, SmallOps::kRows, cols);
  }
  // An op that has nothing to do with the others.
  StepOp Other() { return ops_.Gemm(Bf16(), Bf16()); }
  ReduceOp Sum(int32_t slot_buffer) const {
    return {.x = delta_, .ranks = 2, .slot_buffer = slot_buffer};
  }

  SmallOps ops_;
  const Tensor residual_ = ops_.Matrix(DType::kF32);
  const Tensor delta_ = Bf16();
  const Tensor normed_ = Bf16();
  const Tensor out_ = Bf16();
  const Fp8Rows fp8_ = ops_.Fp8();
};

TEST_F(PassesTest, RopeAppliesTheScalesOfItsInput) {
  RopeOp rope;
  rope.qkv = out_;
  const AnglesOp angles = {};
  const Ops fused =
      After(FuseScales, {ops_.Gemm(fp8_, out_), ops_.Rescale(out_, fp8_), angles, rope});
  rope.scales = {fp8_.scales, nullptr};
  EXPECT_EQ(fused, (Ops{ops_.Gemm(fp8_, out_), angles, rope}));
}

TEST_F(PassesTest, ScalesStayWhereAnotherOpReadsTheResult) {
  const Ops ops = {ops_.Gemm(fp8_, delta_),
                   ops_.Rescale(delta_, fp8_),
                   ops_.Norm(residual_, DeltaInput{delta_}, normed_),
                   ops_.Gemm(delta_, out_)};
  EXPECT_EQ(After(FuseScales, ops), ops);
  Ops biased = {ops.begin(), ops.begin() + 3};
  std::get<RescaleOp>(biased[1]).bias = reinterpret_cast<const __nv_bfloat16*>(this);
  EXPECT_EQ(After(FuseScales, biased), biased) << "a norm adds no bias";
}

TEST_F(PassesTest, ANormAddsUpTheParts) {
  const NormOp norm = ops_.Norm(residual_, DeltaInput{delta_}, normed_);
  const NormOp sums = ops_.Norm(residual_, PeerSumInput{delta_, 1}, normed_);
  EXPECT_EQ(After(FuseNormInputs, {ops_.Gemm(normed_, delta_), ExchangeOp(Sum(1)), norm}),
            (Ops{ops_.Gemm(normed_, delta_), sums}));
  const StepOp other = Other();
  EXPECT_EQ(After(FuseNormInputs, {ExchangeOp(Sum(1)), other, norm}), (Ops{other, sums}))
      << "an op stands between them";
}

TEST_F(PassesTest, ASumStaysBeforeItsNotification) {
  const Ops ops = {
      ExchangeOp(Sum(0)), NotifyOp{}, ops_.Norm(residual_, DeltaInput{delta_}, normed_)};
  EXPECT_EQ(After(FuseNormInputs, ops), ops);
}

TEST_F(PassesTest, ASumStaysWhereAnotherOpReadsIt) {
  const Ops ops = {ExchangeOp(Sum(0)),
                   ops_.Norm(residual_, DeltaInput{delta_}, normed_),
                   ops_.Gemm(delta_, out_)};
  EXPECT_EQ(After(FuseNormInputs, ops), ops);
}

TEST_F(PassesTest, AGatherReadsAttentionWhereItIsPacked) {
  AttentionOp attend;
  attend.qkv = normed_;
  attend.out = out_.Columns(8, 8);
  attend.packed = Bf16(8);
  const GatherColumnsOp gather = {
      .whole = out_, .mine = {}, .ends = {8, 16}, .to_all = true, .slot_buffer = 0};
  AttentionOp packed = attend;
  packed.out = std::exchange(packed.packed, {});
  GatherColumnsOp from_packed = gather;
  from_packed.mine = attend.packed;
  EXPECT_EQ(After(FusePackedAttention, {attend, ExchangeOp(gather)}),
            (Ops{packed, ExchangeOp(from_packed)}));
  const Ops read = {attend, ops_.Gemm(attend.out, Bf16()), ExchangeOp(gather)};
  EXPECT_EQ(After(FusePackedAttention, read), read) << "another op reads the unpacked columns";
}

TEST_F(PassesTest, AnExchangeComputesSiluMul) {
  const Tensor gate_up = Bf16(16);
  const SiluMulOp silu = {.gate_up = gate_up, .out = out_.Columns(8, 8)};
  const GatherColumnsOp gather = {
      .whole = out_, .mine = {}, .ends = {8, 16}, .to_all = true, .slot_buffer = 0};
  GatherColumnsOp computes = gather;
  computes.mine = gate_up;
  computes.silu_mul = true;
  EXPECT_EQ(After(FuseSiluExchange, {silu, ExchangeOp(gather)}), (Ops{ExchangeOp(computes)}));
  const Ops read = {silu, ops_.Gemm(silu.out, Bf16()), ExchangeOp(gather)};
  EXPECT_EQ(After(FuseSiluExchange, read), read) << "another op reads the columns before";
  GatherColumnsOp without_slots = gather;
  without_slots.slot_buffer = kThroughNccl;
  const Ops nccl = {silu, ExchangeOp(without_slots)};
  EXPECT_EQ(After(FuseSiluExchange, nccl), nccl) << "NCCL computes nothing";
  GatherColumnsOp odd = gather;
  odd.ends = {4, 8, 16};
  const Ops words = {silu, ExchangeOp(odd)};
  EXPECT_EQ(After(FuseSiluExchange, words), words) << "columns that are not whole vectors";
}

TEST_F(PassesTest, AGemmComputesSiluMul) {
  const Tensor gate_up = Bf16(2 * SmallOps::kCols);
  const SiluMulOp silu = {.gate_up = gate_up, .out = out_};
  MatMulOp fused = ops_.Gemm(fp8_, gate_up);
  fused.problem.silu_mul = true;
  fused.problem.out = out_.data;
  fused.problem.out_stride = out_.stride;
  fused.problem.x_scales = fp8_.scales;
  EXPECT_EQ(After(FuseSiluMul, {ops_.Gemm(fp8_, gate_up), ops_.Rescale(gate_up, fp8_), silu}),
            (Ops{fused}));
  const Ops read = {ops_.Gemm(normed_, gate_up), silu, ops_.Gemm(gate_up, Bf16())};
  EXPECT_EQ(After(FuseSiluMul, read), read);
}

TEST_F(PassesTest, AGemmAddsItsResultToTheResidual) {
  MatMulOp adds = ops_.Gemm(out_, delta_);
  adds.problem.out = residual_.data;
  adds.problem.out_dtype = DType::kF32;
  adds.problem.accumulate = true;
  const StepOp other = Other();
  EXPECT_EQ(
      After(FuseResidual,
            {ops_.Gemm(out_, delta_), other, ops_.Norm(residual_, DeltaInput{delta_}, normed_)}),
      (Ops{adds, other, ops_.Norm(residual_, NoInput{}, normed_)}));
}

// The residual that an op between them reads has not the GEMM's result yet.
TEST_F(PassesTest, AResidualThatIsReadMeanwhileIsAddedToLater) {
  const Ops ops = {ops_.Gemm(out_, delta_),
                   GatherOp{residual_, ops_.Matrix(DType::kF32)},
                   ops_.Norm(residual_, DeltaInput{delta_}, normed_)};
  EXPECT_EQ(After(FuseResidual, ops), ops);
}

TEST_F(PassesTest, AGemmNormalisesItsInput) {
  const NormOp norm = ops_.Norm(residual_, NoInput{}, normed_);
  MatMulOp fused = ops_.Gemm(normed_, out_);
  fused.problem.x = nullptr;
  fused.problem.residual = reinterpret_cast<const float*>(residual_.data);
  fused.problem.norm_weight = reinterpret_cast<const float*>(this);
  NormOp weighted = norm;
  weighted.weight = fused.problem.norm_weight;
  EXPECT_EQ(After(FuseNorm, {weighted, ops_.Gemm(normed_, out_)}), (Ops{fused}));
  const Ops two = {weighted, ops_.Gemm(normed_, out_), ops_.Gemm(normed_, Bf16())};
  EXPECT_EQ(After(FuseNorm, two), two) << "two GEMMs read the norm";
  const Ops adds = {ops_.Norm(residual_, DeltaInput{delta_}, normed_), ops_.Gemm(normed_, out_)};
  EXPECT_EQ(After(FuseNorm, adds), adds) << "the norm changes the residual";
}

TEST_F(PassesTest, TheProducerConvertsAnOperandToFp8) {
  NormOp norm = ops_.Norm(residual_, DeltaInput{delta_}, normed_);
  const Ops ops = {norm, QuantizeOp{normed_, fp8_}, ops_.Gemm(fp8_, out_)};
  NormOp fused = norm;
  fused.out.data = nullptr;
  fused.fp8_out = fp8_;
  EXPECT_EQ(After(FuseQuantize, ops), (Ops{fused, ops_.Gemm(fp8_, out_)}));
  Ops read = ops;
  read.emplace_back(ops_.Gemm(normed_, Bf16()));
  EXPECT_EQ(After(FuseQuantize, read), read) << "another op reads bf16";
}

TEST_F(PassesTest, SiluMulAppliesScalesAndConverts) {
  const Tensor gate_up = Bf16(2 * SmallOps::kCols);
  const Fp8Rows inner = ops_.Fp8();
  SiluMulOp silu = {.gate_up = gate_up, .out = out_};
  const Ops fused = After(FuseQuantize,
                          {ops_.Gemm(fp8_, gate_up),
                           ops_.Rescale(gate_up, fp8_),
                           silu,
                           QuantizeOp{out_, inner},
                           ops_.Gemm(inner, delta_)});
  silu.scales = {fp8_.scales, nullptr};
  silu.out.data = nullptr;
  silu.fp8_out = inner;
  EXPECT_EQ(fused, (Ops{ops_.Gemm(fp8_, gate_up), silu, ops_.Gemm(inner, delta_)}));
}

TEST_F(PassesTest, OpsStayApartWhereAnActivationIsBetweenThem) {
  const Tensor gate_up = Bf16(2 * SmallOps::kCols);
  const Ops converted = {ops_.Gemm(normed_, out_),
                         FamilyOp(ActivateOp{out_, Activation::kGelu}),
                         QuantizeOp{out_, fp8_},
                         ops_.Gemm(fp8_, delta_)};
  EXPECT_EQ(After(FuseQuantize, converted), converted);
  const Ops gated = {ops_.Gemm(normed_, gate_up),
                     FamilyOp(ScaleOp{gate_up, 2}),
                     SiluMulOp{.gate_up = gate_up, .out = out_}};
  EXPECT_EQ(After(FuseSiluMul, gated), gated);
  const Ops added = {ops_.Gemm(normed_, delta_),
                     FamilyOp(SigmoidGateOp{delta_, out_}),
                     ops_.Norm(residual_, DeltaInput{delta_}, normed_)};
  EXPECT_EQ(After(FuseResidual, added), added);
}

TEST_F(PassesTest, AGemmAppliesItsScales) {
  MatMulOp fused = ops_.Gemm(fp8_, out_);
  fused.problem.x_scales = fp8_.scales;
  EXPECT_EQ(After(FuseRescale, {ops_.Gemm(fp8_, out_), ops_.Rescale(out_, fp8_)}), (Ops{fused}));
  const Ops halves = {ops_.Gemm(ops_.Fp8(2), out_.Rows(0, 2)),
                      ops_.Gemm(ops_.Fp8(2), out_.Rows(2, 2)),
                      ops_.Rescale(out_, fp8_)};
  EXPECT_EQ(After(FuseRescale, halves), halves) << "each GEMM has a part";
}

}  // namespace
}  // namespace baton::cuda

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "kernels/ops.h"
#include "kernels/tensor.h"

// The ops of a StepGraph.
namespace baton::graph {

// Index into StepGraph::values(). Each value is written by one op (static single assignment).
using ValueId = int32_t;

// The operands of an op, as the names of its members.
template <class Op, size_t n>
using Members = std::array<ValueId Op::*, n>;

// The ops. `out` is the value that an op writes. Where a comment says "in place", `out` takes the
// memory of the value that it replaces (ReplacementOf).

// As Ops::Embed.
struct EmbedOp {
  static constexpr std::string_view kName = "Embed";

  const Matrix* table = nullptr;
  int32_t first_token = 0;
  ValueId out = 0;

  static constexpr Members<EmbedOp, 0> kReads = {};
  static constexpr Members<EmbedOp, 1> kWrites = {&EmbedOp::out};
};

// out = residual + delta, in place of the residual.
struct AddOp {
  static constexpr std::string_view kName = "Add";

  ValueId residual = 0;
  ValueId delta = 0;
  ValueId out = 0;

  static constexpr Members<AddOp, 2> kReads = {&AddOp::residual, &AddOp::delta};
  static constexpr Members<AddOp, 1> kWrites = {&AddOp::out};
};

// out = RmsNorm(x), as Ops::RmsNorm.
struct NormOp {
  static constexpr std::string_view kName = "Norm";

  ValueId x = 0;
  const Vector* weight = nullptr;
  float epsilon = 0;
  ValueId out = 0;

  static constexpr Members<NormOp, 1> kReads = {&NormOp::x};
  static constexpr Members<NormOp, 1> kWrites = {&NormOp::out};
};

// sum = residual + delta, in place of the residual; out = RmsNorm(sum). FuseAddNorm makes it of an
// AddOp and a NormOp.
struct AddNormOp {
  static constexpr std::string_view kName = "AddNorm";

  ValueId residual = 0;
  ValueId delta = 0;
  ValueId sum = 0;
  const Vector* weight = nullptr;
  float epsilon = 0;
  ValueId out = 0;

  static constexpr Members<AddNormOp, 2> kReads = {&AddNormOp::residual, &AddNormOp::delta};
  static constexpr Members<AddNormOp, 2> kWrites = {&AddNormOp::sum, &AddNormOp::out};
};

// out = W x + bias.
struct MatMulOp {
  static constexpr std::string_view kName = "MatMul";

  ValueId x = 0;
  const Matrix* weight = nullptr;
  const Vector* bias = nullptr;  // null: none
  ValueId out = 0;

  static constexpr Members<MatMulOp, 1> kReads = {&MatMulOp::x};
  static constexpr Members<MatMulOp, 1> kWrites = {&MatMulOp::out};
};

// out = silu(Wgate x + bgate) · (Wup x + bup), as Ops::MatMulSiluMul.
struct GatedMatMulOp {
  static constexpr std::string_view kName = "GatedMatMul";

  ValueId x = 0;
  const Matrix* gate_up = nullptr;
  const Vector* bias = nullptr;  // null: none
  ValueId out = 0;

  static constexpr Members<GatedMatMulOp, 1> kReads = {&GatedMatMulOp::x};
  static constexpr Members<GatedMatMulOp, 1> kWrites = {&GatedMatMulOp::out};
};

// As Ops::Experts, which exchanges the ranks' sums.
struct ExpertsOp {
  static constexpr std::string_view kName = "Experts";

  ValueId x = 0;
  ExpertArgs args = {};
  ValueId out = 0;

  static constexpr Members<ExpertsOp, 1> kReads = {&ExpertsOp::x};
  static constexpr Members<ExpertsOp, 1> kWrites = {&ExpertsOp::out};
};

// As Ops::RopeAndWriteKv, in place of `qkv`.
struct RopeAndWriteKvOp {
  static constexpr std::string_view kName = "RopeAndWriteKv";

  ValueId qkv = 0;
  HeadShape heads = {};
  RopeArgs args = {};
  int32_t layer = 0;
  ValueId out = 0;

  static constexpr Members<RopeAndWriteKvOp, 1> kReads = {&RopeAndWriteKvOp::qkv};
  static constexpr Members<RopeAndWriteKvOp, 1> kWrites = {&RopeAndWriteKvOp::out};
};

struct AttentionOp {
  static constexpr std::string_view kName = "Attention";

  ValueId qkv = 0;
  AttentionArgs args = {};
  ValueId out = 0;

  static constexpr Members<AttentionOp, 1> kReads = {&AttentionOp::qkv};
  static constexpr Members<AttentionOp, 1> kWrites = {&AttentionOp::out};
};

// out = the logit rows of x.
struct GatherRowsOp {
  static constexpr std::string_view kName = "GatherRows";

  ValueId x = 0;
  ValueId out = 0;

  static constexpr Members<GatherRowsOp, 1> kReads = {&GatherRowsOp::x};
  static constexpr Members<GatherRowsOp, 1> kWrites = {&GatherRowsOp::out};
};

// The ops of FamilyOps.

// out = factor · x, in place.
struct ScaleOp {
  static constexpr std::string_view kName = "Scale";

  ValueId x = 0;
  float factor = 1;
  ValueId out = 0;

  static constexpr Members<ScaleOp, 1> kReads = {&ScaleOp::x};
  static constexpr Members<ScaleOp, 1> kWrites = {&ScaleOp::out};
};

struct LayerNormOp {
  static constexpr std::string_view kName = "LayerNorm";

  ValueId x = 0;
  const Vector* weight = nullptr;  // as for FamilyOps::LayerNorm
  float epsilon = 0;
  ValueId out = 0;

  static constexpr Members<LayerNormOp, 1> kReads = {&LayerNormOp::x};
  static constexpr Members<LayerNormOp, 1> kWrites = {&LayerNormOp::out};
};

// In place.
struct ActivateOp {
  static constexpr std::string_view kName = "Activate";

  ValueId x = 0;
  Activation activation = Activation::kGelu;
  float scale = 1;
  ValueId out = 0;

  static constexpr Members<ActivateOp, 1> kReads = {&ActivateOp::x};
  static constexpr Members<ActivateOp, 1> kWrites = {&ActivateOp::out};
};

// In place.
struct SoftCapOp {
  static constexpr std::string_view kName = "SoftCap";

  ValueId x = 0;
  float cap = 0;
  ValueId out = 0;

  static constexpr Members<SoftCapOp, 1> kReads = {&SoftCapOp::x};
  static constexpr Members<SoftCapOp, 1> kWrites = {&SoftCapOp::out};
};

// out = x · factors by element, in place of x.
struct MultiplyOp {
  static constexpr std::string_view kName = "Multiply";

  ValueId x = 0;
  ValueId factors = 0;
  ValueId out = 0;

  static constexpr Members<MultiplyOp, 2> kReads = {&MultiplyOp::x, &MultiplyOp::factors};
  static constexpr Members<MultiplyOp, 1> kWrites = {&MultiplyOp::out};
};

// out = sigmoid(gate) · x, in place of x.
struct SigmoidGateOp {
  static constexpr std::string_view kName = "SigmoidGate";

  ValueId x = 0;
  ValueId gate = 0;
  ValueId out = 0;

  static constexpr Members<SigmoidGateOp, 2> kReads = {&SigmoidGateOp::x, &SigmoidGateOp::gate};
  static constexpr Members<SigmoidGateOp, 1> kWrites = {&SigmoidGateOp::out};
};

struct HeadSquaresOp {
  static constexpr std::string_view kName = "HeadSquares";

  ValueId qkv = 0;
  HeadShape heads = {};
  HeadPlace place = {};
  ValueId out = 0;

  static constexpr Members<HeadSquaresOp, 1> kReads = {&HeadSquaresOp::qkv};
  static constexpr Members<HeadSquaresOp, 1> kWrites = {&HeadSquaresOp::out};
};

// As FamilyOps::NormProjections, in place of `qkv`.
struct ProjectionNormOp {
  static constexpr std::string_view kName = "ProjectionNorm";

  ValueId qkv = 0;
  ValueId squares = 0;
  HeadShape heads = {};
  HeadPlace place = {};
  const Vector* weight = nullptr;
  float epsilon = 0;
  ValueId out = 0;

  static constexpr Members<ProjectionNormOp, 2> kReads = {&ProjectionNormOp::qkv,
                                                          &ProjectionNormOp::squares};
  static constexpr Members<ProjectionNormOp, 1> kWrites = {&ProjectionNormOp::out};
};

// In place of `qkv`.
struct HeadLayerNormOp {
  static constexpr std::string_view kName = "HeadLayerNorm";

  ValueId qkv = 0;
  HeadShape heads = {};
  const Vector* weight = nullptr;
  float epsilon = 0;
  ValueId out = 0;

  static constexpr Members<HeadLayerNormOp, 1> kReads = {&HeadLayerNormOp::qkv};
  static constexpr Members<HeadLayerNormOp, 1> kWrites = {&HeadLayerNormOp::out};
};

// The ops of LatentOps. WriteLatent works in place of `kv`.
struct WriteLatentOp {
  static constexpr std::string_view kName = "WriteLatent";

  ValueId kv = 0;
  LatentKvArgs args = {};
  ValueId out = 0;

  static constexpr Members<WriteLatentOp, 1> kReads = {&WriteLatentOp::kv};
  static constexpr Members<WriteLatentOp, 1> kWrites = {&WriteLatentOp::out};
};
struct AbsorbQueriesOp {
  static constexpr std::string_view kName = "AbsorbQueries";

  ValueId q = 0;
  LatentQueryArgs args = {};
  ValueId out = 0;

  static constexpr Members<AbsorbQueriesOp, 1> kReads = {&AbsorbQueriesOp::q};
  static constexpr Members<AbsorbQueriesOp, 1> kWrites = {&AbsorbQueriesOp::out};
};
struct AttendLatentsOp {
  static constexpr std::string_view kName = "AttendLatents";

  ValueId q = 0;
  LatentAttentionArgs args = {};
  ValueId out = 0;

  static constexpr Members<AttendLatentsOp, 1> kReads = {&AttendLatentsOp::q};
  static constexpr Members<AttendLatentsOp, 1> kWrites = {&AttendLatentsOp::out};
};
struct WriteIndexKeysOp {  // in place of `k`
  static constexpr std::string_view kName = "WriteIndexKeys";

  ValueId k = 0;
  IndexKeyArgs args = {};
  ValueId out = 0;

  static constexpr Members<WriteIndexKeysOp, 1> kReads = {&WriteIndexKeysOp::k};
  static constexpr Members<WriteIndexKeysOp, 1> kWrites = {&WriteIndexKeysOp::out};
};
struct SelectTokensOp {
  static constexpr std::string_view kName = "SelectTokens";

  ValueId q = 0;
  ValueId weights = 0;
  SelectArgs args = {};
  ValueId out = 0;

  static constexpr Members<SelectTokensOp, 2> kReads = {&SelectTokensOp::q,
                                                        &SelectTokensOp::weights};
  static constexpr Members<SelectTokensOp, 1> kWrites = {&SelectTokensOp::out};
};
struct AttendSelectedOp {
  static constexpr std::string_view kName = "AttendSelected";

  ValueId q = 0;
  ValueId selected = 0;
  LatentAttentionArgs args = {};
  ValueId out = 0;

  static constexpr Members<AttendSelectedOp, 2> kReads = {&AttendSelectedOp::q,
                                                          &AttendSelectedOp::selected};
  static constexpr Members<AttendSelectedOp, 1> kWrites = {&AttendSelectedOp::out};
};
struct ExpandValuesOp {
  static constexpr std::string_view kName = "ExpandValues";

  ValueId x = 0;
  LatentValueArgs args = {};
  ValueId out = 0;

  static constexpr Members<ExpandValuesOp, 1> kReads = {&ExpandValuesOp::x};
  static constexpr Members<ExpandValuesOp, 1> kWrites = {&ExpandValuesOp::out};
};

// As RecurrentOps::RunRecurrent.
struct RecurrentOp {
  static constexpr std::string_view kName = "Recurrent";

  ValueId x = 0;
  ValueId gates = 0;
  RecurrentArgs args = {};
  ValueId out = 0;

  static constexpr Members<RecurrentOp, 2> kReads = {&RecurrentOp::x, &RecurrentOp::gates};
  static constexpr Members<RecurrentOp, 1> kWrites = {&RecurrentOp::out};
};

// As RecurrentOps::Convolve.
struct ConvolveOp {
  static constexpr std::string_view kName = "Convolve";

  ValueId x = 0;
  RecurrentArgs args = {};
  ValueId out = 0;

  static constexpr Members<ConvolveOp, 1> kReads = {&ConvolveOp::x};
  static constexpr Members<ConvolveOp, 1> kWrites = {&ConvolveOp::out};
};

// As RecurrentOps::Scan.
struct ScanOp {
  static constexpr std::string_view kName = "Scan";

  ValueId v = 0;
  ValueId gates = 0;
  ValueId k = 0;
  ValueId q = 0;
  RecurrentArgs args = {};
  ValueId out = 0;

  static constexpr Members<ScanOp, 4> kReads = {&ScanOp::v, &ScanOp::gates, &ScanOp::k, &ScanOp::q};
  static constexpr Members<ScanOp, 1> kWrites = {&ScanOp::out};
};

// The exchanges between tensor ranks (PlaceExchanges), all in place.
struct AllReduceOp {
  static constexpr std::string_view kName = "AllReduce";

  ValueId x = 0;  // a Summand
  ValueId out = 0;

  static constexpr Members<AllReduceOp, 1> kReads = {&AllReduceOp::x};
  static constexpr Members<AllReduceOp, 1> kWrites = {&AllReduceOp::out};
};
struct GatherColumnsOp {
  static constexpr std::string_view kName = "GatherColumns";

  ValueId x = 0;       // Columns
  bool to_all = true;  // false: to tensor rank 0
  ValueId out = 0;

  static constexpr Members<GatherColumnsOp, 1> kReads = {&GatherColumnsOp::x};
  static constexpr Members<GatherColumnsOp, 1> kWrites = {&GatherColumnsOp::out};
};
struct BarrierOp {
  static constexpr std::string_view kName = "Barrier";

  static constexpr Members<BarrierOp, 0> kReads = {};
  static constexpr Members<BarrierOp, 0> kWrites = {};
};

// Messages between the stages of a pipeline.
struct SendOp {
  static constexpr std::string_view kName = "Send";

  ValueId x = 0;
  int32_t stage = 0;

  static constexpr Members<SendOp, 1> kReads = {&SendOp::x};
  static constexpr Members<SendOp, 0> kWrites = {};
};
// Tells another stage that all earlier ops have finished: sends one element, no matter which.
struct SignalOp {
  static constexpr std::string_view kName = "Signal";

  int32_t stage = 0;
  ValueId out = 0;  // what is sent

  static constexpr Members<SignalOp, 0> kReads = {};
  static constexpr Members<SignalOp, 1> kWrites = {&SignalOp::out};
};

struct ReceiveOp {
  static constexpr std::string_view kName = "Receive";

  int32_t stage = 0;
  ValueId out = 0;

  static constexpr Members<ReceiveOp, 0> kReads = {};
  static constexpr Members<ReceiveOp, 1> kWrites = {&ReceiveOp::out};
};

// All tensor ranks have written the KV of `layer` for all rows. The layer is counted from the first
// one of the model.
struct KvWrittenOp {
  static constexpr std::string_view kName = "KvWritten";

  int32_t layer = 0;

  static constexpr Members<KvWrittenOp, 0> kReads = {};
  static constexpr Members<KvWrittenOp, 0> kWrites = {};
};

using Op = std::variant<EmbedOp,
                        AddOp,
                        NormOp,
                        AddNormOp,
                        MatMulOp,
                        GatedMatMulOp,
                        ExpertsOp,
                        RopeAndWriteKvOp,
                        AttentionOp,
                        GatherRowsOp,
                        ScaleOp,
                        LayerNormOp,
                        ActivateOp,
                        SoftCapOp,
                        MultiplyOp,
                        SigmoidGateOp,
                        HeadSquaresOp,
                        ProjectionNormOp,
                        HeadLayerNormOp,
                        WriteLatentOp,
                        AbsorbQueriesOp,
                        AttendLatentsOp,
                        WriteIndexKeysOp,
                        SelectTokensOp,
                        AttendSelectedOp,
                        ExpandValuesOp,
                        RecurrentOp,
                        ConvolveOp,
                        ScanOp,
                        AllReduceOp,
                        GatherColumnsOp,
                        BarrierOp,
                        SendOp,
                        SignalOp,
                        ReceiveOp,
                        KvWrittenOp>;

}  // namespace baton::graph

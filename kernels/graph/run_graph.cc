#include "kernels/graph/run_graph.h"

namespace baton::graph {
namespace {

int64_t RowsOf(RowCount rows, const StepRun& run) {
  switch (rows) {
    case RowCount::kStep:
      return run.rows;
    case RowCount::kLogits:
      return run.logit_rows;
    case RowCount::kOne:
      break;
  }
  return 1;
}

// Calls ops with the tensors of their operands.
class Caller {
 public:
  Caller(const StepGraph& graph, const StepRun& run, Ops& ops)
      : graph_(graph), run_(run), ops_(ops) {}

  void operator()(const EmbedOp& op) const { ops_.Embed(*op.table, op.first_token, Out(op.out)); }
  void operator()(const AddOp& op) const { ops_.Add(All(op.residual), All(op.delta)); }
  void operator()(const NormOp& op) const {
    ops_.RmsNorm(All(op.x), *op.weight, op.epsilon, Out(op.out));
  }
  void operator()(const AddNormOp& op) const {
    ops_.AddRmsNorm(All(op.residual), All(op.delta), *op.weight, op.epsilon, Out(op.out));
  }
  void operator()(const MatMulOp& op) const {
    ops_.MatMul(All(op.x), *op.weight, op.bias, Out(op.out));
  }
  void operator()(const GatedMatMulOp& op) const {
    ops_.MatMulSiluMul(All(op.x), *op.gate_up, op.bias, Out(op.out));
  }
  void operator()(const ExpertsOp& op) const { ops_.Experts(All(op.x), op.args, Out(op.out)); }
  void operator()(const RopeAndWriteKvOp& op) const {
    ops_.RopeAndWriteKv(All(op.qkv), op.heads, op.args, op.layer);
  }
  void operator()(const AttentionOp& op) const {
    ops_.Attention(All(op.qkv), op.args, Out(op.out));
  }
  void operator()(const GatherRowsOp& op) const { ops_.GatherLogitRows(Out(op.x), Out(op.out)); }
  void operator()(const ScaleOp& op) const { family().Scale(All(op.out), op.factor); }
  void operator()(const LayerNormOp& op) const {
    family().LayerNorm(All(op.x), *op.weight, op.epsilon, Out(op.out));
  }
  void operator()(const ActivateOp& op) const {
    family().Activate(Out(op.out), op.activation, op.scale);
  }
  void operator()(const SoftCapOp& op) const { family().SoftCap(Out(op.out), op.cap); }
  void operator()(const MultiplyOp& op) const { family().Multiply(Out(op.out), Out(op.factors)); }
  void operator()(const SigmoidGateOp& op) const { family().MulSigmoid(Out(op.out), All(op.gate)); }
  void operator()(const HeadSquaresOp& op) const {
    family().HeadSquares(All(op.qkv), op.heads, op.place, Out(op.out));
  }
  void operator()(const ProjectionNormOp& op) const {
    family().NormProjections(
        All(op.out), All(op.squares), op.heads, op.place, *op.weight, op.epsilon);
  }
  void operator()(const HeadLayerNormOp& op) const {
    family().HeadLayerNorm(All(op.out), op.heads, *op.weight, op.epsilon);
  }
  void operator()(const WriteLatentOp& op) const {
    ops_.latent_ops()->WriteLatent(All(op.out), op.args);
  }
  void operator()(const AbsorbQueriesOp& op) const {
    ops_.latent_ops()->AbsorbQueries(All(op.q), op.args, Out(op.out));
  }
  void operator()(const AttendLatentsOp& op) const {
    ops_.latent_ops()->AttendLatents(All(op.q), op.args, Out(op.out));
  }
  void operator()(const WriteIndexKeysOp& op) const {
    ops_.latent_ops()->WriteIndexKeys(All(op.out), op.args);
  }
  void operator()(const SelectTokensOp& op) const {
    ops_.latent_ops()->SelectTokens(All(op.q), All(op.weights), op.args, Out(op.out));
  }
  void operator()(const AttendSelectedOp& op) const {
    ops_.latent_ops()->AttendSelected(All(op.q), All(op.selected), op.args, Out(op.out));
  }
  void operator()(const ExpandValuesOp& op) const {
    ops_.latent_ops()->ExpandValues(All(op.x), op.args, Out(op.out));
  }
  void operator()(const RecurrentOp& op) const {
    ops_.recurrent_ops()->RunRecurrent(All(op.x), All(op.gates), op.args, Out(op.out));
  }
  void operator()(const ConvolveOp& op) const {
    ops_.recurrent_ops()->Convolve(All(op.x), op.args, Out(op.out));
  }
  void operator()(const ScanOp& op) const {
    ops_.recurrent_ops()->Scan(
        All(op.v), All(op.gates), All(op.k), All(op.q), op.args, Out(op.out));
  }
  void operator()(const AllReduceOp& op) const { ops_.exchange()->AllReduce(All(op.out)); }
  void operator()(const GatherColumnsOp& op) const {
    const std::vector<int64_t>& ends = std::get<Columns>(graph_.value(op.x).share).ends;
    if (op.to_all) {
      ops_.exchange()->AllGather(All(op.out), ends);
    } else {
      ops_.exchange()->GatherToFirst(All(op.out), ends);
    }
  }
  void operator()(const BarrierOp& /*op*/) const { ops_.exchange()->Barrier(); }
  void operator()(const SendOp& op) const { ops_.exchange()->SendToStage(All(op.x), op.stage); }
  void operator()(const SignalOp& op) const { ops_.exchange()->SendToStage(Out(op.out), op.stage); }
  void operator()(const ReceiveOp& op) const {
    ops_.exchange()->ReceiveFromStage(Out(op.out), op.stage);
  }
  void operator()(const KvWrittenOp& op) const {
    if (run_.kv_written) run_.kv_written(op.layer);
  }

 private:
  FamilyOps& family() const { return *ops_.family_ops(); }

  Tensor All(ValueId id) const { return TensorOf(graph_, id, run_); }

  // The columns that this rank computes.
  Tensor Out(ValueId id) const {
    const auto* const columns = std::get_if<Columns>(&graph_.value(id).share);
    if (columns == nullptr) return All(id);
    const auto rank = static_cast<size_t>(run_.tensor_rank);
    const int64_t first = rank == 0 ? 0 : columns->ends[rank - 1];
    return All(id).Columns(first, columns->ends[rank] - first);
  }

  const StepGraph& graph_;
  const StepRun& run_;
  Ops& ops_;
};

}  // namespace

Tensor TensorOf(const StepGraph& graph, ValueId id, const StepRun& run) {
  return run.values[static_cast<size_t>(id)].Rows(0, RowsOf(graph.value(id).rows, run));
}

void RunGraph(const StepGraph& graph, const StepRun& run, Ops& ops) {
  const Caller call(graph, run, ops);
  for (const Op& op : graph.ops()) std::visit(call, op);
}

}  // namespace baton::graph

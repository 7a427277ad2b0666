#include "common/model/decoder_values.h"

#include <cstdint>
#include <optional>

#include "common/model/recurrent_graph.h"

namespace baton {

DecoderValues::DecoderValues(const ModelSpec& spec, const RankPlan& plan, DType dtype) {
  const bool gathers = plan.mode == ExchangeMode::kGather;
  const int64_t head_dim = spec.head_dim;
  const int64_t q_cols =
      int64_t{gathers ? spec.heads : plan.heads.q_heads} * spec.output_head_dim();
  const int64_t qkv_cols = (plan.heads.q_heads + 2 * plan.heads.kv_heads) * head_dim;
  const auto width = [gathers](int64_t whole, const std::optional<IndexRange>& held) {
    return !gathers && held ? held->size() : whole;
  };
  const int64_t inner = width(spec.intermediate, plan.slice.intermediate);
  const int64_t shared_inner = width(spec.moe.shared_intermediate, plan.slice.shared_intermediate);
  residual = {"residual", DType::kF32, graph::RowCount::kStep, spec.hidden};
  normed = {"normed", dtype, graph::RowCount::kStep, spec.hidden};
  qkv = {"qkv", dtype, graph::RowCount::kStep, qkv_cols};
  squares = {"squares", DType::kF32, graph::RowCount::kStep, spec.heads + spec.kv_heads};
  attention = {"attention", dtype, graph::RowCount::kStep, q_cols};
  const int64_t gate_cols = int64_t{plan.heads.q_heads} * head_dim;
  attention_gate = {"attention_gate", dtype, graph::RowCount::kStep, gate_cols};
  const RecurrentShape state = gathers ? spec.recurrent.shape : RecurrentShapeOf(spec, plan);
  recurrent = {"recurrent", dtype, graph::RowCount::kStep, state.value_numbers()};
  delta = {"delta", dtype, graph::RowCount::kStep, spec.hidden};
  feed_forward = {"feed_forward", dtype, graph::RowCount::kStep, inner};
  shared = {"shared", dtype, graph::RowCount::kStep, shared_inner};
  gate = {"gate", dtype, graph::RowCount::kStep, 1};
  logits = {"logits", DType::kF32, graph::RowCount::kLogits, spec.vocab};
  states = {"states", dtype, graph::RowCount::kLogits, spec.hidden};
  signal = {"signal", DType::kF32, graph::RowCount::kOne, 1};
}

}  // namespace baton

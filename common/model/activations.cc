#include "common/model/activations.h"

#include <algorithm>
#include <span>
#include <vector>

namespace baton {
namespace {

// The stride of rows is a multiple of this many elements, so that vector loads stay within cache
// lines.
constexpr int64_t kRowMultiple = 16;

// An activation buffer to be allocated.
struct WantedActivation {
  Activation& to;
  DType dtype;
  int64_t rows;
  int64_t cols;

  int64_t stride() const { return (cols + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }
  size_t bytes() const { return static_cast<size_t>(rows * stride()) * ShapeOf(dtype).bytes; }
};

// Host memory is committed only when it is first touched, so the total is checked before the first
// allocation.
Status AllocateAll(std::span<const WantedActivation> wanted, int32_t max_rows, Device& device) {
  size_t bytes = 0;
  for (const WantedActivation& one : wanted) bytes += one.bytes();
  const size_t free_bytes = device.free_bytes();
  if (bytes > free_bytes) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "activations of steps of {} tokens (engine.max_step_tokens) take {} bytes on "
                      "{}; {} bytes are free beside the weights",
                      max_rows,
                      bytes,
                      device.name(),
                      free_bytes);
  }
  for (const WantedActivation& one : wanted) {
    BATON_ASSIGN_OR_RETURN(one.to.buffer, device.Allocate(one.bytes(), Sharing::kPrivate));
    one.to.tensor = {one.to.buffer->data(), one.dtype, one.rows, one.cols, one.stride()};
  }
  return OkStatus();
}

}  // namespace

StatusOr<Activations> Activations::Allocate(const ModelSpec& spec,
                                            const RankPlan& plan,
                                            int32_t max_rows,
                                            int32_t max_logit_rows,
                                            Ops& ops) {
  const int64_t rows = ops.PaddedRows(max_rows);
  const int64_t logit_rows = ops.PaddedRows(max_logit_rows);
  const bool gathers = plan.mode == ExchangeMode::kGather;
  const int64_t head_dim = spec.head_dim;
  const int64_t q_cols = (gathers ? spec.heads : plan.heads.q_heads) * head_dim;
  const int64_t qkv_cols = (plan.heads.q_heads + 2 * plan.heads.kv_heads) * head_dim;
  const int64_t inner =
      !gathers && plan.slice.intermediate ? plan.slice.intermediate->size() : spec.intermediate;
  // The gathered rows of the last layer use the same buffers.
  const int64_t most = std::max(rows, logit_rows);
  const DType dtype = ops.activation_dtype();
  Activations all;
  std::vector<WantedActivation> wanted = {
      {all.residual, DType::kF32, rows, spec.hidden},
      {all.normed, dtype, most, spec.hidden},
      {all.qkv, dtype, rows, qkv_cols},
      {all.attention, dtype, rows, q_cols},
      {all.delta, dtype, most, spec.hidden},
      {all.feed_forward, dtype, most, std::max<int64_t>(inner, 1)},
  };
  if (plan.last_stage()) {
    wanted.push_back({all.last_attention, dtype, logit_rows, q_cols});
    wanted.push_back({all.last_residual, DType::kF32, logit_rows, spec.hidden});
    wanted.push_back({all.last_normed, dtype, logit_rows, spec.hidden});
  }
  if (plan.last_stage() || plan.place.leader()) {
    wanted.push_back({all.logits, DType::kF32, logit_rows, spec.vocab});
  }
  BATON_RETURN_IF_ERROR(AllocateAll(wanted, max_rows, ops.device()));
  return all;
}

}  // namespace baton

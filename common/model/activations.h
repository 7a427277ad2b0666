#pragma once

#include <memory>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

// An activation buffer with its view.
struct Activation {
  std::unique_ptr<Buffer> buffer;
  Tensor tensor;

  // The first `rows` rows.
  Tensor Rows(int64_t rows) const { return tensor.Rows(0, rows); }
};

// The activations of a decoder, allocated once for the largest step. Attention and feed_forward
// have the columns of all tensor-parallel ranks when these gather them, else the columns of this
// rank.
struct Activations {
  Activation residual, normed, qkv, attention, delta, feed_forward;
  // Of the logit rows: last stage.
  Activation last_attention, last_residual, last_normed;
  Activation logits;  // last stage and leader

  // Errors: ResourceExhausted when the buffers for `max_rows` rows and `max_logit_rows` logit rows
  // do not fit into the free memory of the device.
  static StatusOr<Activations> Allocate(const ModelSpec& spec,
                                        const RankPlan& plan,
                                        int32_t max_rows,
                                        int32_t max_logit_rows,
                                        Ops& ops);
};

}  // namespace baton

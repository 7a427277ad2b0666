#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/model/decoder_graphs.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

// The memory of the values of a decoder's graphs, allocated once for the largest step.
struct Activations {
  std::vector<std::unique_ptr<Buffer>> buffers;
  // By graph::BufferId, each with all of its rows. Without data where no graph has values.
  std::vector<Tensor> tensors;

  // Errors: ResourceExhausted when the buffers for `max_rows` rows and `max_logit_rows` logit rows
  // do not fit into the free memory of the device.
  static StatusOr<Activations> Allocate(const DecoderGraphs& graphs,
                                        int32_t max_rows,
                                        int32_t max_logit_rows,
                                        Ops& ops);
};

}  // namespace baton

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "common/base/status.h"
#include "common/model/decoder_graphs.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

// The memory of the values of a decoder's graphs, for the largest step.
class Activations {
 public:
  // By graph::ValueId of the graphs of one kind of step.
  struct Tensors {
    std::vector<Tensor> stage;
    std::vector<Tensor> answer;
  };

  // Errors: ResourceExhausted when the values of steps of `max_rows` rows and `max_logit_rows`
  // logit rows, or of hidden states of all rows, do not fit into the free memory of the device.
  static StatusOr<Activations> Place(const DecoderGraphs& graphs,
                                     int32_t max_rows,
                                     int32_t max_logit_rows,
                                     Ops& ops);

  const Tensors& of(size_t step_kind) const { return tensors_[step_kind]; }

 private:
  std::array<Tensors, std::tuple_size_v<DecoderGraphs>> tensors_;  // by StepKindOf
  PlacedValues placed_;
};

}  // namespace baton

#pragma once

#include <optional>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/weight_slice.h"

namespace baton {

// The part of a decoder's weights that one rank of a tensor-parallel group holds. Without a range:
// all. Weights that are not named here (norms, router, rope frequencies, and the biases of the
// attention output and of down) are loaded whole. The products of matrices that are cut by columns
// are partial: their sum over the ranks is the product, to which the bias is added once.
struct DecoderSlice {
  std::optional<IndexRange> heads = {};     // query heads: rows of q, columns of attention output
  std::optional<IndexRange> kv_heads = {};  // rows of k and v
  std::optional<IndexRange> intermediate =
      {};                                  // dense layers: rows of gate and up, columns of down
  std::optional<IndexRange> experts = {};  // the experts that are loaded
  // Of each loaded expert: rows of gate and up, columns of down.
  std::optional<IndexRange> expert_intermediate = {};
  std::optional<IndexRange> vocab = {};  // rows of the embedding and of the output head

  // InvalidArgument, naming the range and the valid values, when a range is empty or not within the
  // model, or when attention over the slice would use other KV heads than the whole model does.
  Status Validate(const ModelSpec& spec) const;
};

}  // namespace baton

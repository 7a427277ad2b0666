#pragma once

#include <optional>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/weight_slice.h"

namespace baton {

// The part of a decoder's weights that one rank of a group holds. Without a range: all. Weights
// that are not named here (norms, router, rope frequencies) are loaded whole. Attention output and
// down are cut by rows or by columns:
// - with `hidden`, a rank has these rows (outputs) of both, and of their biases, with all columns;
// - without, a rank has the columns (inputs) of its heads and intermediate rows. Its products are
//   partial: their sum over the ranks is the product, to which the whole bias is added once.
struct DecoderSlice {
  std::optional<IndexRange> layers =
      {};  // the embedding is before the first, the head after the last
  std::optional<IndexRange> heads = {};                // query heads: rows of q
  std::optional<IndexRange> kv_heads = {};             // rows of k and v
  std::optional<IndexRange> hidden = {};               // rows of attention output and of down
  std::optional<IndexRange> intermediate = {};         // dense layers: rows of gate and up
  std::optional<IndexRange> shared_intermediate = {};  // of the shared expert: the same
  std::optional<IndexRange> experts = {};              // the experts that are loaded
  // Of each loaded expert: rows of gate and up, columns of down.
  std::optional<IndexRange> expert_intermediate = {};
  std::optional<IndexRange> vocab = {};  // rows of the embedding and of the output head

  // InvalidArgument, naming the range and the valid values, when a range is empty or not within the
  // model, or when attention over the slice would use other KV heads than the whole model does.
  Status Validate(const ModelSpec& spec) const;
};

}  // namespace baton

#pragma once

#include <cstdint>
#include <variant>

#include "kernels/recurrent_ops.h"
#include "kernels/tensor.h"

// The ops of recurrent layers as data (step_ops.h). RecurrentOps::RunRecurrent is a convolution, an
// update of the states, which walks the rows of a sequence, and what follows for each row alone.
namespace baton::cuda {

// What the ops of a layer have in common. Vectors are on the device; RecurrentArgs has their
// shapes.
struct RecurrentLayer {
  RecurrentShape shape;
  const float* convolution = nullptr;
  const float* convolution_bias = nullptr;  // null: none
  const float* decay = nullptr;
  const float* time_bias = nullptr;
  const float* skip = nullptr;
  const float* norm = nullptr;  // null: none
  float norm_epsilon = 0;
  float gate_scale = 1;
  float time_scale = 1;
  float min_time = 0;
  float max_time = 0;
  int32_t layer = 0;  // KvLayerPlace::index
  bool operator==(const RecurrentLayer&) const = default;
};

// The ops that walk rows have all sequences of the step, or without those of StateChunks.
//
// out = silu(convolution), of each key head [q | k | v], as float32; with kSelectiveScan v, as an
// activation. Writes the inputs into the states.
struct ConvolveOp {
  Tensor x;
  RecurrentLayer layer;
  Tensor out;
  bool without_chunks = false;
  bool operator==(const ConvolveOp&) const = default;
};

// Updates the matrices S; out = qᵀ S, as float32.
struct UpdateStatesOp {
  Tensor convolved;
  Tensor x;  // kChannelDelta has b there
  Tensor gates;
  RecurrentLayer layer;
  Tensor out;
  bool without_chunks = false;
  bool operator==(const UpdateStatesOp&) const = default;
};

// The norm, the gate and the skip of the outputs of UpdateStatesOp.
struct FinishRowsOp {
  Tensor outputs;
  Tensor convolved;
  Tensor x;
  RecurrentLayer layer;
  Tensor out;
  bool without_chunks = false;
  bool operator==(const FinishRowsOp&) const = default;
};

// All of RecurrentOps::RunRecurrent for sequences with one row each, in one kernel.
struct DecodeRowsOp {
  Tensor x;
  Tensor gates;
  RecurrentLayer layer;
  Tensor out;
  bool operator==(const DecodeRowsOp&) const = default;
};

// All of RecurrentOps::RunRecurrent for the sequences of StateChunks (chunk_rows.h).
struct ChunkRowsOp {
  Tensor x;
  Tensor gates;
  RecurrentLayer layer;
  Tensor memory;  // float32
  Tensor out;
  bool all_rows = false;  // whether they have all rows of the step
  bool operator==(const ChunkRowsOp&) const = default;
};

// As RecurrentOps::Scan. `v` has the value heads of this rank alone.
struct ScanOp {
  Tensor v;
  Tensor gates;
  Tensor k;
  Tensor q;
  RecurrentLayer layer;
  Tensor out;
  bool operator==(const ScanOp&) const = default;
};

using RecurrentOp =
    std::variant<ConvolveOp, UpdateStatesOp, FinishRowsOp, DecodeRowsOp, ChunkRowsOp, ScanOp>;

}  // namespace baton::cuda

#pragma once

#include "common/model/bf16_layers.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "kernels/dtype.h"

namespace baton {

// A matrix that has a shape and no numbers.
class ShapeMatrix final : public Matrix {
 public:
  ShapeMatrix(int64_t rows, int64_t cols, DType dtype) : rows_(rows), cols_(cols), dtype_(dtype) {}
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t bytes() const override { return 0; }
  DType dtype() const { return dtype_; }

 private:
  int64_t rows_;
  int64_t cols_;
  DType dtype_;
};

// The weights of the whole model as ShapeMatrix, for graphs that nobody runs: in bf16, with
// `fp8_weights` those in FP8 that a worker stores so.
DecoderWeights ShapeWeights(const ModelSpec& spec, bool fp8_weights, const Bf16Layers& bf16 = {});

}  // namespace baton

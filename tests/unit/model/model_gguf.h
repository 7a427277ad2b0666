#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "tests/unit/model/gguf_writer.h"

namespace baton {

// A Llama of two layers, whose matrices have whole blocks of every type.
ModelSpec SmallSpec(int32_t head_dim = 64);

struct MatrixBytes {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;
};
using MatrixMaker = std::function<MatrixBytes(const WeightId&, int64_t rows, int64_t cols)>;
using VectorMaker = std::function<std::vector<float>(const WeightId&, int64_t size)>;

// A GGUF writer with the metadata and all tensors of a model of this shape, like the output of
// llama.cpp's converter. It does not permute q and k rows: the makers must return them in the order
// of the architecture. `split_experts`: each matrix of an expert is a separate tensor, as
// converters wrote before April 2024.
GgufWriter WriteModel(const ModelSpec& spec,
                      const MatrixMaker& matrix,
                      const VectorMaker& vector,
                      bool split_experts = false);

// The matrices of `source`, with q and k rows permuted as the converter does for Llama files.
MatrixMaker FloatsOf(const WeightSource& source, const ModelSpec& spec);
VectorMaker VectorsOf(const WeightSource& source);

// Blocks of `dtype` with random bytes, but with scales that give weights of about ±0.1.
MatrixMaker RandomBlocks(DType dtype, uint64_t seed);
// The same matrices, dequantised to float32.
MatrixMaker Dequantized(const MatrixMaker& maker);

// Parses a finished file and returns its weights; `bytes` must outlive them.
StatusOr<std::unique_ptr<WeightSource>> WeightsOf(const std::vector<std::byte>& bytes);
StatusOr<ModelSpec> SpecOf(const std::vector<std::byte>& bytes);

}  // namespace baton

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "tests/unit/model/gguf_writer.h"

namespace baton {

struct MatrixBytes {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;
};
using MatrixMaker = std::function<MatrixBytes(const WeightId&, int64_t rows, int64_t cols)>;
using VectorMaker = std::function<std::vector<float>(const WeightId&, int64_t size)>;

// A GGUF writer holding the metadata and all tensors of a model of that shape, as llama.cpp's
// converter would write it (except that it does not permute: the makers give q and k rows as the
// architecture wants them). `split_experts`: as converters before April 2024, each expert's
// matrices are tensors of their own.
GgufWriter WriteModel(const ModelSpec& spec,
                      const MatrixMaker& matrix,
                      const VectorMaker& vector,
                      bool split_experts = false);

// Matrices of `source` as float32, q and k rows permuted as the converter does for Llama files.
MatrixMaker FloatsOf(const WeightSource& source, const ModelSpec& spec);
VectorMaker VectorsOf(const WeightSource& source);

// Blocks of `dtype` whose bytes are random but for the scales, which give weights of about ±0.1.
MatrixMaker RandomBlocks(DType dtype, uint64_t seed);
// The same matrices, dequantised to float32.
MatrixMaker Dequantized(const MatrixMaker& maker);

// Parses a finished file and reads weights from it; `bytes` must stay.
StatusOr<std::unique_ptr<WeightSource>> WeightsOf(const std::vector<std::byte>& bytes);
StatusOr<ModelSpec> SpecOf(const std::vector<std::byte>& bytes);

}  // namespace baton

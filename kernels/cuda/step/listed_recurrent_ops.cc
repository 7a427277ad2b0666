#include "kernels/cuda/step/listed_recurrent_ops.h"

#include <cstdint>

#include "common/base/check.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/recurrent/chunk_rows.h"
#include "kernels/recurrent_columns.h"

namespace baton::cuda {
namespace {

// Whether each row of bf16 elements begins at a multiple of `elements` elements.
bool HasVectors(const Tensor& x, int64_t elements) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(uint16_t));
  return x.stride % elements == 0 &&
         static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data)) % (elements * kBytes) == 0;
}

}  // namespace

RecurrentLayer ListedRecurrentOps::LayerOf(const RecurrentArgs& args) const {
  CheckRecurrentVectors(args);
  return {.shape = args.shape,
          .convolution = DataOf(args.convolution),
          .convolution_bias = DataOf(args.convolution_bias),
          .decay = DataOf(args.decay),
          .time_bias = DataOf(args.time_bias),
          .skip = DataOf(args.skip),
          .norm = DataOf(args.norm),
          .norm_epsilon = args.norm_epsilon,
          .gate_scale = args.gate_scale,
          .time_scale = args.time_scale,
          .min_time = args.min_time,
          .max_time = args.max_time,
          .layer = step_.place(args.layer, args.shape)};
}

Tensor ListedRecurrentOps::Floats(int64_t rows, int64_t cols) const {
  const auto bytes = rows * cols * static_cast<int64_t>(sizeof(float));
  return {step_.scratch(bytes), DType::kF32, rows, cols, cols};
}

void ListedRecurrentOps::RunRecurrent(const Tensor& x,
                                      const Tensor& gates,
                                      const RecurrentArgs& args,
                                      const Tensor& out) {
  const RecurrentShape& shape = args.shape;
  CheckColumns(x, shape.input_columns(), "inputs");
  CheckColumns(gates, shape.gate_columns(), "gates");
  CheckColumns(out, shape.value_numbers(), "outputs");
  if (!step_.accepts(shape)) return;
  const RecurrentLayer layer = LayerOf(args);
  const Tensor inputs = step_.pad(x);
  const Tensor of_gates = step_.pad(gates);
  const Tensor outputs = step_.pad(out);
  if (HasVectors(inputs, kDecodeVector) && step_.decodes(shape)) {
    step_.add(DecodeRowsOp{.x = inputs, .gates = of_gates, .layer = layer, .out = outputs});
    return;
  }
  const bool vectors = HasVectors(inputs, kChunkVector) && HasVectors(outputs, kChunkVector);
  const ChunkPlan plan = vectors ? step_.chunks(shape) : ChunkPlan{};
  if (!plan.all_rows) WalkRows(inputs, of_gates, layer, outputs, plan.chunks > 0);
  if (plan.chunks == 0) return;
  const int64_t elements = ChunkMemory::Bytes(shape) / static_cast<int64_t>(sizeof(float));
  step_.add(ChunkRowsOp{.x = inputs,
                        .gates = of_gates,
                        .layer = layer,
                        .memory = Floats(plan.chunks, elements),
                        .out = outputs,
                        .all_rows = plan.all_rows});
}

void ListedRecurrentOps::WalkRows(const Tensor& x,
                                  const Tensor& gates,
                                  const RecurrentLayer& layer,
                                  const Tensor& out,
                                  bool without_chunks) const {
  const RecurrentShape& shape = layer.shape;
  const Tensor convolved = Floats(x.rows, int64_t{shape.key_heads} * shape.channels());
  const Tensor outputs = Floats(x.rows, shape.value_numbers());
  step_.add(ConvolveOp{.x = x, .layer = layer, .out = convolved, .without_chunks = without_chunks});
  step_.add(UpdateStatesOp{.convolved = convolved,
                           .x = x,
                           .gates = gates,
                           .layer = layer,
                           .out = outputs,
                           .without_chunks = without_chunks});
  step_.add(FinishRowsOp{.outputs = outputs,
                         .convolved = convolved,
                         .x = x,
                         .layer = layer,
                         .out = out,
                         .without_chunks = without_chunks});
}

void ListedRecurrentOps::Convolve(const Tensor& x, const RecurrentArgs& args, const Tensor& out) {
  CheckColumns(x, args.shape.input_columns(), "inputs");
  CheckColumns(out, args.shape.value_numbers(), "outputs");
  if (!step_.accepts(args.shape)) return;
  step_.add(ConvolveOp{.x = step_.pad(x), .layer = LayerOf(args), .out = step_.pad(out)});
}

void ListedRecurrentOps::Scan(const Tensor& v,
                              const Tensor& gates,
                              const Tensor& k,
                              const Tensor& q,
                              const RecurrentArgs& args,
                              const Tensor& out) {
  const RecurrentShape& shape = args.shape;
  BATON_CHECK(args.first_value + shape.value_numbers() <= v.cols,
              "values {} + {} of {}",
              args.first_value,
              shape.value_numbers(),
              v.cols);
  CheckColumns(gates, shape.gate_columns(), "gates");
  CheckColumns(k, shape.key_dim, "keys");
  CheckColumns(q, shape.key_dim, "queries");
  CheckColumns(out, shape.value_numbers(), "outputs");
  if (!step_.accepts(shape)) return;
  step_.add(ScanOp{.v = step_.pad(v).Columns(args.first_value, shape.value_numbers()),
                   .gates = step_.pad(gates),
                   .k = step_.pad(k),
                   .q = step_.pad(q),
                   .layer = LayerOf(args),
                   .out = step_.pad(out)});
}

}  // namespace baton::cuda

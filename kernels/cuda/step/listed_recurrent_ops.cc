#include "kernels/cuda/step/listed_recurrent_ops.h"

#include "common/base/check.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/recurrent_columns.h"

namespace baton::cuda {

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
  const Tensor convolved = Floats(inputs.rows, int64_t{shape.key_heads} * shape.channels());
  const Tensor outputs = Floats(inputs.rows, shape.value_numbers());
  step_.add(ConvolveOp{.x = inputs, .layer = layer, .out = convolved});
  step_.add(UpdateStatesOp{.convolved = convolved,
                           .x = inputs,
                           .gates = step_.pad(gates),
                           .layer = layer,
                           .out = outputs});
  step_.add(FinishRowsOp{.outputs = outputs,
                         .convolved = convolved,
                         .x = inputs,
                         .layer = layer,
                         .out = step_.pad(out)});
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

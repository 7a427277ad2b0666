#include "kernels/recurrent_columns.h"

#include "common/base/check.h"

namespace baton {

RecurrentColumns ColumnsOf(const RecurrentShape& shape) {
  const int64_t keys = shape.key_numbers();
  const int64_t values = shape.value_numbers();
  const int64_t of_head = int64_t{shape.group()} * shape.value_dim;
  RecurrentColumns columns = {.key_stride = shape.key_dim, .value_stride = of_head};
  switch (shape.rule) {
    case RecurrentRule::kDelta:
      columns.k = shape.key_dim;
      columns.v = int64_t{2} * shape.key_dim;
      columns.z = columns.v + of_head;
      columns.key_stride = columns.value_stride = columns.z + of_head;
      break;
    case RecurrentRule::kChannelDelta:
      columns.k = keys;
      columns.v = 2 * keys;
      columns.beta = columns.v + values;
      break;
    case RecurrentRule::kStateSpace:
      columns.v = values;
      columns.k = 2 * values;
      columns.q = columns.k + keys;
      break;
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return columns;
}

void CheckColumns(const Tensor& x, int64_t cols, const char* what) {
  BATON_CHECK(x.cols == cols, "{} of [{}][{}]; {} columns expected", what, x.rows, x.cols, cols);
}

void CheckRecurrentVectors(const RecurrentArgs& args) {
  const RecurrentShape& shape = args.shape;
  const auto check = [](const Vector* vector, int64_t size, const char* what) {
    const int64_t found = vector == nullptr ? 0 : vector->size();
    BATON_CHECK(found == size, "{} of {}; {} expected", what, found, size);
  };
  const bool scan = shape.rule == RecurrentRule::kSelectiveScan;
  const bool adds = scan || shape.rule == RecurrentRule::kStateSpace;
  const int64_t heads = shape.value_heads;
  check(args.convolution, shape.key_heads * shape.convolution_numbers(), "a convolution");
  if (args.convolution_bias != nullptr) {
    check(args.convolution_bias, int64_t{shape.key_heads} * shape.channels(), "a bias of it");
  }
  check(args.decay, scan ? shape.key_heads * shape.matrix_numbers() : heads, "decays");
  check(args.time_bias,
        shape.rule == RecurrentRule::kDelta ? heads : shape.gate_columns(),
        "biases of time");
  check(args.skip, !adds ? 0 : scan ? shape.value_numbers() : heads, "skips");
  if (adds && args.norm == nullptr) return;
  check(args.norm, adds ? shape.value_numbers() : shape.value_dim, "a norm");
}

}  // namespace baton

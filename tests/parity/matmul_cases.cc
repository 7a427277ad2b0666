#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/group_weights.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"
#include "tests/parity/weight_types.h"

namespace baton::parity {
namespace {

std::unique_ptr<Matrix> Load(Ops& ops, const std::vector<HostWeights>& parts) {
  std::vector<HostMatrix> host;
  for (const HostWeights& part : parts) host.push_back(part.matrix());
  auto matrix = ops.LoadMatrix(host);
  EXPECT_TRUE(matrix.ok()) << matrix.status();
  return matrix.ok() ? *std::move(matrix) : nullptr;
}

std::unique_ptr<Vector> LoadFloats(Ops& ops, const std::vector<float>& values) {
  auto vector = ops.LoadVector(values);
  EXPECT_TRUE(vector.ok()) << vector.status();
  return vector.ok() ? *std::move(vector) : nullptr;
}

struct Dot {
  double value = 0;
  double bound = 0;  // Σ|w| · max|x|
};

Dot Product(const HostWeights& w, int64_t row, const float* x) {
  double value = 0;
  double weights = 0;
  double largest = 0;
  for (int64_t k = 0; k < w.cols; ++k) {
    const double weight = w.values[static_cast<size_t>(row * w.cols + k)];
    value += weight * x[k];
    weights += std::fabs(weight);
    largest = std::max(largest, std::fabs(static_cast<double>(x[k])));
  }
  return {value, weights * largest};
}

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

// Checks W x + bias for a matrix of stacked parts.
void CheckMatMul(Ops& ops,
                 const Tolerance& tolerance,
                 std::vector<HostWeights> parts,
                 int64_t m,
                 bool with_bias,
                 DType out_dtype) {
  for (HostWeights& part : parts) part = HeldBy(ops, std::move(part));
  const int64_t cols = parts[0].cols;
  int64_t rows = 0;
  for (const HostWeights& part : parts) rows += part.rows;
  const auto matrix = Load(ops, parts);
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->rows(), rows);
  EXPECT_EQ(matrix->cols(), cols);
  const auto x = RandomActivations(ops, static_cast<size_t>(m * cols), 11, 2.0f);
  const auto bias = RandomActivations(ops, static_cast<size_t>(rows), 12);
  const auto bias_vector = LoadFloats(ops, bias);
  const DeviceTensor in(ops, m, cols, x);
  const DeviceTensor out(ops, out_dtype, m, rows);
  const double stored = out_dtype == DType::kF32 ? 0 : tolerance.stored;
  InStep(ops, [&] {
    ops.MatMul(in.view(), *matrix, with_bias ? bias_vector.get() : nullptr, out.view());
  });
  const auto got = out.Read();
  for (int64_t r = 0; r < m; ++r) {
    int64_t col = 0;
    for (const HostWeights& part : parts) {
      for (int64_t o = 0; o < part.rows; ++o, ++col) {
        const Dot dot = Product(part, o, x.data() + r * cols);
        const double want = dot.value + (with_bias ? bias[static_cast<size_t>(col)] : 0.0f);
        ASSERT_NEAR(got[static_cast<size_t>(r * rows + col)],
                    want,
                    tolerance.product * dot.bound + stored * std::fabs(want) + 1e-6)
            << "row " << r << ", output " << col;
      }
    }
  }
}

void CheckGateUp(Ops& ops,
                 const Tolerance& tolerance,
                 HostWeights gate,
                 HostWeights up,
                 int64_t m,
                 bool with_bias) {
  gate = HeldBy(ops, std::move(gate));
  up = HeldBy(ops, std::move(up));
  auto matrix = ops.LoadGateUp(gate.matrix(), up.matrix());
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const auto x = RandomActivations(ops, static_cast<size_t>(m * gate.cols), 21, 2.0f);
  const auto bias = RandomActivations(ops, static_cast<size_t>(2 * gate.rows), 22);
  const auto bias_vector = LoadFloats(ops, bias);
  const DeviceTensor in(ops, m, gate.cols, x);
  const DeviceTensor out(ops, m, gate.rows);
  InStep(ops, [&] {
    ops.MatMulSiluMul(in.view(), **matrix, with_bias ? bias_vector.get() : nullptr, out.view());
  });
  const auto got = out.Read();
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t o = 0; o < gate.rows; ++o) {
      const Dot g = Product(gate, o, x.data() + r * gate.cols);
      const Dot u = Product(up, o, x.data() + r * gate.cols);
      const double gate_bias = with_bias ? bias[static_cast<size_t>(o)] : 0.0f;
      const double up_bias = with_bias ? bias[static_cast<size_t>(gate.rows + o)] : 0.0f;
      const double a = g.value + gate_bias;
      const double b = u.value + up_bias;
      const double bound =
          tolerance.product * (g.bound * (std::fabs(b) + 1) + u.bound * (std::fabs(a) + 1)) + 1e-6 +
          (tolerance.elementwise + 4 * tolerance.stored) * std::fabs(a * b);
      ASSERT_NEAR(got[static_cast<size_t>(r * gate.rows + o)], Silu(a) * b, bound)
          << "row " << r << ", output " << o;
    }
  }
}

// Rows [5, 38) and columns [2 · unit, 5 · unit) of a matrix of 40 rows and 6 · unit columns.
HostMatrix MiddleOf(const HostMatrix& whole, int64_t unit) {
  HostMatrix part = whole;
  part.rows = 33;
  part.cols = 3 * unit;
  part.first_row = 5;
  part.first_col = 2 * unit;
  part.whole_cols = whole.cols;
  if (whole.data != nullptr) part.data = whole.Row(5) + RowBytes(whole.dtype, 2 * unit);
  return part;
}

// A part of `whole` gives the same bits as a matrix that has only the numbers of the part.
// `numbers` are the bytes of `whole`.
void CheckPartOf(Ops& ops, const HostMatrix& whole, const std::byte* numbers, int64_t unit) {
  HostMatrix read = whole;
  read.data = numbers;
  read = MiddleOf(read, unit);
  std::vector<std::byte> bytes;
  for (int64_t row = 0; row < read.rows; ++row) {
    bytes.insert(bytes.end(), read.Row(row), read.Row(row) + RowBytes(read.dtype, read.cols));
  }
  const HostMatrix part = MiddleOf(whole, unit);
  const HostMatrix copy{part.dtype, part.rows, part.cols, bytes.data()};
  constexpr int64_t kRows = 3;
  const DeviceTensor x(
      ops, kRows, part.cols, RandomActivations(ops, static_cast<size_t>(kRows * part.cols), 9));
  std::vector<std::vector<float>> results;
  for (const HostMatrix& one : {part, copy}) {
    const auto matrix = ops.LoadMatrix({&one, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    const DeviceTensor out(ops, DType::kF32, kRows, part.rows);
    InStep(ops, [&] { ops.MatMul(x.view(), **matrix, nullptr, out.view()); });
    results.push_back(out.Read());
  }
  EXPECT_EQ(results[0], results[1]);
}

void CheckBadShapes(Ops& ops) {
  const HostWeights a = RandomWeights(DType::kF32, 4, 32, 1);
  const HostWeights b = RandomWeights(DType::kF32, 4, 64, 2);
  const HostMatrix unequal[] = {a.matrix(), b.matrix()};
  EXPECT_EQ(ops.LoadMatrix(unequal).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ops.LoadMatrix({}).status().code(), StatusCode::kInvalidArgument);
  HostMatrix ragged = a.matrix();
  ragged.dtype = DType::kQ4_1;
  ragged.cols = 40;
  EXPECT_EQ(ops.LoadMatrix({&ragged, 1}).status().code(), StatusCode::kInvalidArgument);
  HostMatrix left = b.matrix();
  left.cols = 32;
  left.whole_cols = 64;
  HostMatrix right = left;
  right.first_col = 32;
  right.data = b.matrix().data + RowBytes(DType::kF32, 32);
  const HostMatrix two_halves[] = {left, right};
  EXPECT_EQ(ops.LoadMatrix(two_halves).status().code(), StatusCode::kInvalidArgument);
  const HostWeights up = RandomWeights(DType::kF32, 8, 32, 3);
  EXPECT_EQ(ops.LoadGateUp(a.matrix(), up.matrix()).status().code(), StatusCode::kInvalidArgument);
}

void AddPartCases(std::vector<Case>& cases) {
  for (const DType dtype : kWeightTypes) {
    const int64_t unit = std::max<int64_t>(16, static_cast<int64_t>(ShapeOf(dtype).elements));
    cases.push_back({fmt::format("MatMul_{}_part", Name(dtype)), [=](Ops& ops, const Tolerance&) {
                       const auto whole = RandomWeights(dtype, 40, 6 * unit, 8);
                       CheckPartOf(ops, whole.matrix(), whole.bytes.data(), unit);
                     }});
  }
  cases.push_back(
      {"MatMul_drawn_part", [](Ops& ops, const Tolerance&) {
         const HostMatrix whole{
             .dtype = DType::kBF16, .rows = 40, .cols = 96, .stream = 77, .scale = 0.5f};
         std::vector<uint16_t> numbers(size_t{40} * 96);
         DrawMatrix(whole, numbers);
         CheckPartOf(ops, whole, std::as_bytes(std::span(numbers)).data(), 16);
       }});
}

// A part of the rows and columns has the bits of the same part of a matrix that is not quantised.
void CheckPartOfGroups(Ops& ops, const GroupForm& form) {
  constexpr int64_t kRows = 103;  // more than a tile
  const HostWeights whole = RandomGroupWeights(form, 110, 192, 8);
  HostMatrix part = whole.matrix();
  part.rows = kRows;
  part.cols = 96;
  part.whole_cols = 192;
  part.groups.first_row = part.first_row = 5;
  part.groups.first_col = part.first_col = 64;
  part.data = part.data + 5 * RowBytes(part.dtype, 192) + RowBytes(part.dtype, 64);
  std::vector<float> row(96);
  for (int64_t r = 0; r < part.rows; ++r) {
    DequantizeRow(part, r, row);
    const auto first = whole.values.begin() + (5 + r) * 192 + 64;
    ASSERT_TRUE(std::equal(row.begin(), row.end(), first)) << "row " << r;
  }
  HostWeights copy{.dtype = DType::kF32, .rows = kRows, .cols = 96};
  for (int64_t r = 5; r < 5 + kRows; ++r) {
    copy.values.insert(copy.values.end(),
                       whole.values.begin() + r * 192 + 64,
                       whole.values.begin() + r * 192 + 160);
  }
  copy = HeldBy(ops, std::move(copy));
  const auto matrix = ops.LoadMatrix({&part, 1});
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const auto x = RandomActivations(ops, size_t{3} * 96, 9);
  const DeviceTensor in(ops, 3, 96, x);
  const DeviceTensor out(ops, DType::kF32, 3, kRows);
  InStep(ops, [&] { ops.MatMul(in.view(), **matrix, nullptr, out.view()); });
  const auto got = out.Read();
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t o = 0; o < kRows; ++o) {
      const Dot dot = Product(copy, o, x.data() + r * 96);
      ASSERT_NEAR(got[static_cast<size_t>(r * kRows + o)], dot.value, 1e-3 * dot.bound)
          << r << ", " << o;
    }
  }
}

void AddGroupCases(std::vector<Case>& cases) {
  struct Shape {
    int64_t rows, cols, m;
  };
  for (const GroupForm& form : GroupForms()) {
    for (const Shape& shape : {Shape{16, 192, 1},
                               Shape{17, 192, 3},
                               Shape{130, 384, 9},
                               Shape{200, 1152, 1},
                               Shape{70, 384, 70}}) {
      cases.push_back(
          {fmt::format("MatMul_{}_{}x{}_m{}", form.name, shape.rows, shape.cols, shape.m),
           [=](Ops& ops, const Tolerance& tolerance) {
             CheckMatMul(ops,
                         tolerance,
                         {RandomGroupWeights(form, shape.rows, shape.cols, 5),
                          RandomGroupWeights(form, 24, shape.cols, 6)},
                         shape.m,
                         shape.rows % 2 == 0,
                         ops.activation_dtype());
           }});
    }
    cases.push_back(
        {fmt::format("MatMul_{}_alone", form.name), [=](Ops& ops, const Tolerance& tolerance) {
           CheckMatMul(ops,
                       tolerance,
                       {RandomGroupWeights(form, 50, 384, 5)},
                       3,
                       false,
                       ops.activation_dtype());
         }});
    cases.push_back(
        {fmt::format("GateUp_{}", form.name), [=](Ops& ops, const Tolerance& tolerance) {
           CheckGateUp(ops,
                       tolerance,
                       RandomGroupWeights(form, 72, 384, 6),
                       RandomGroupWeights(form, 72, 384, 7),
                       9,
                       true);
         }});
    cases.push_back({fmt::format("MatMul_{}_part", form.name),
                     [=](Ops& ops, const Tolerance&) { CheckPartOfGroups(ops, form); }});
  }
  cases.push_back({"GateUp_of_two_forms_of_groups", [](Ops& ops, const Tolerance& tolerance) {
                     CheckGateUp(ops,
                                 tolerance,
                                 RandomGroupWeights(GroupForms()[0], 40, 96, 6),
                                 RandomGroupWeights(GroupForms()[4], 40, 96, 7),
                                 3,
                                 true);
                   }});
}

// A single row of no multiple of 512 numbers.
void AddRowCases(std::vector<Case>& cases) {
  for (const int64_t cols : {960, 2304, 2880}) {
    cases.push_back(
        {fmt::format("MatMul_row_of_{}", cols), [=](Ops& ops, const Tolerance& tolerance) {
           const auto weights = RandomWeights(DType::kBF16, 72, cols, 6);
           CheckMatMul(ops, tolerance, {weights}, 1, true, ops.activation_dtype());
           CheckMatMul(ops, tolerance, {weights}, 1, false, DType::kF32);
           const auto up = RandomWeights(DType::kBF16, 72, cols, 7);
           CheckGateUp(ops, tolerance, weights, up, 1, false);
         }});
  }
}

}  // namespace

std::vector<Case> MatMulCases() {
  std::vector<Case> cases;
  struct Shape {
    int64_t rows, cols, m;
  };
  for (const DType dtype : kWeightTypes) {
    const auto step = static_cast<int64_t>(ShapeOf(dtype).elements);
    for (const Shape& shape : {Shape{1, step, 1},
                               Shape{16, 2 * step, 2},
                               Shape{17, 3 * step, 5},
                               Shape{100, step, 7},
                               Shape{200, 512, 1},
                               Shape{130, 512, 67},
                               Shape{40, 1280, 130}}) {
      cases.push_back(
          {fmt::format("MatMul_{}_{}x{}_m{}", Name(dtype), shape.rows, shape.cols, shape.m),
           [=](Ops& ops, const Tolerance& tolerance) {
             CheckMatMul(ops,
                         tolerance,
                         {RandomWeights(dtype, shape.rows, WholeCols(ops, shape.cols), 5)},
                         shape.m,
                         shape.rows % 2 == 0,
                         ops.activation_dtype());
           }});
    }
    for (const int64_t m : {1, 9}) {
      cases.push_back(
          {fmt::format("GateUp_{}_m{}", Name(dtype), m), [=](Ops& ops, const Tolerance& tolerance) {
             CheckGateUp(ops,
                         tolerance,
                         RandomWeights(dtype, 72, 512, 6),
                         RandomWeights(dtype, 72, 512, 7),
                         m,
                         m == 9);
           }});
    }
  }
  for (const int64_t m : {1, 66}) {
    cases.push_back(
        {fmt::format("MatMul_stacked_types_m{}", m), [=](Ops& ops, const Tolerance& tolerance) {
           CheckMatMul(ops,
                       tolerance,
                       {RandomWeights(DType::kQ4_1, 48, 256, 1),
                        RandomWeights(DType::kBF16, 24, 256, 2),
                        RandomWeights(DType::kQ6_K, 24, 256, 3)},
                       m,
                       true,
                       ops.activation_dtype());
         }});
    // Logits are float32 on every backend.
    cases.push_back(
        {fmt::format("MatMul_logits_m{}", m), [=](Ops& ops, const Tolerance& tolerance) {
           const auto head = RandomWeights(DType::kBF16, 1003, 192, 4);
           CheckMatMul(ops, tolerance, {head}, m, false, DType::kF32);
         }});
  }
  AddRowCases(cases);
  cases.push_back({"MatMul_odd_float_columns", [](Ops& ops, const Tolerance& tolerance) {
                     const auto odd = RandomWeights(DType::kF32, 33, WholeCols(ops, 37), 1);
                     CheckMatMul(ops, tolerance, {odd}, 3, true, ops.activation_dtype());
                   }});
  cases.push_back({"GateUp_of_two_types", [](Ops& ops, const Tolerance& tolerance) {
                     CheckGateUp(ops,
                                 tolerance,
                                 RandomWeights(DType::kQ8_0, 40, 96, 6),
                                 RandomWeights(DType::kF16, 40, 96, 7),
                                 3,
                                 true);
                   }});
  AddPartCases(cases);
  AddGroupCases(cases);
  cases.push_back(
      {"Load_refuses_bad_shapes", [](Ops& ops, const Tolerance&) { CheckBadShapes(ops); }});
  return cases;
}

}  // namespace baton::parity

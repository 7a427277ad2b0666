#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"
#include "tests/parity/weight_types.h"

// The bits of a row do not depend on the other rows that are computed with it.
namespace baton::parity {
namespace {

using Floats = std::vector<float>;
using Runs = std::vector<std::pair<int32_t, int32_t>>;  // (first, count)

void ExpectSameBits(const Floats& a, const Floats& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << ": element " << i << " is " << a[i] << " and " << b[i];
  }
}

Floats Slice(const Floats& values, int64_t cols, int64_t first, int64_t count) {
  return {values.begin() + first * cols, values.begin() + (first + count) * cols};
}

// Runs `op` on all rows at once and then on subsets of them, and compares the bits.
void CheckRows(Ops& ops,
               int64_t rows,
               int64_t in_cols,
               int64_t out_cols,
               const std::function<void(const Tensor&, const Tensor&)>& op) {
  const Floats x = RandomFloats(static_cast<size_t>(rows * in_cols), 3);
  const auto run = [&](int64_t first, int64_t count) {
    const DeviceTensor in(ops, count, in_cols, Slice(x, in_cols, first, count));
    const DeviceTensor out(ops, count, out_cols);
    InStep(ops, [&] { op(in.view(), out.view()); });
    return out.Read();
  };
  const Floats all = run(0, rows);
  for (const int64_t count : {1, 2, 3, 7, 64}) {
    for (int64_t first = 0; first < rows; first += 5 * count) {
      const int64_t n = std::min(count, rows - first);
      ExpectSameBits(
          run(first, n), Slice(all, out_cols, first, n), fmt::format("rows {} + {}", first, n));
    }
  }
}

void CheckMatMul(Ops& ops, DType dtype) {
  const HostWeights a = RandomWeights(dtype, 70, 512, 1);
  const HostWeights b = RandomWeights(dtype, 70, 512, 2);
  const HostMatrix parts[] = {a.matrix(), b.matrix()};
  const auto matrix = *ops.LoadMatrix(parts);
  CheckRows(ops, 135, 512, 140, [&](const Tensor& in, const Tensor& out) {
    ops.MatMul(in, *matrix, nullptr, out);
  });
  const auto gate_up = *ops.LoadGateUp(a.matrix(), b.matrix());
  CheckRows(ops, 20, 512, 70, [&](const Tensor& in, const Tensor& out) {
    ops.MatMulSiluMul(in, *gate_up, nullptr, out);
  });
}

void CheckExperts(Ops& ops) {
  const HostWeights router = RandomWeights(DType::kF32, 5, 64, 1);
  const HostMatrix router_host = router.matrix();
  const auto router_matrix = *ops.LoadMatrix({&router_host, 1});
  std::vector<std::unique_ptr<Matrix>> gate_up;
  std::vector<std::unique_ptr<Matrix>> down;
  for (uint64_t e = 0; e < 5; ++e) {
    const HostWeights gate = RandomWeights(DType::kQ8_0, 32, 64, 10 + e);
    const HostWeights up = RandomWeights(DType::kQ8_0, 32, 64, 20 + e);
    const HostWeights back = RandomWeights(DType::kQ8_0, 64, 32, 30 + e);
    gate_up.push_back(*ops.LoadGateUp(gate.matrix(), up.matrix()));
    const HostMatrix back_host = back.matrix();
    down.push_back(*ops.LoadMatrix({&back_host, 1}));
  }
  const ExpertArgs args{router_matrix.get(), gate_up, down, 2, true};
  CheckRows(
      ops, 130, 64, 64, [&](const Tensor& in, const Tensor& out) { ops.Experts(in, args, out); });
}

// The attention of sequence 0, whose tokens are computed in chunks `runs`, each in one step with
// the rows of `others`.
Floats Attend(Ops& ops,
              const HeadShape& heads,
              DType dtype,
              int32_t window,
              const Runs& runs,
              const Runs& others) {
  Runs lengths = {{0, runs.back().first + runs.back().second}};
  for (const auto& [context, count] : others) lengths.emplace_back(context, count);
  History history(ops, heads, dtype, 16, lengths);
  history.Fill();
  const int64_t q_size = int64_t{heads.q_heads} * heads.head_dim;
  Floats result;
  for (const auto& run : runs) {
    Runs rows = {run};
    rows.insert(rows.end(), others.begin(), others.end());
    const StepPlan plan = history.Step(rows);
    const Floats values = history.Rows(plan);
    const DeviceTensor in(
        ops, plan.rows(), static_cast<int64_t>(values.size()) / plan.rows(), values);
    const DeviceTensor out(ops, plan.rows(), q_size);
    EXPECT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
    RopeArgs rope;
    rope.kv_scales = history.kv_scales();
    ops.RopeAndWriteKv(in.view(), heads, rope, 1);
    ops.Attention(in.view(),
                  {.heads = heads,
                   .layer = 1,
                   .scale = 0.2f,
                   .window = window,
                   .kv_scales = history.kv_scales()},
                  out.view());
    EXPECT_TRUE(ops.EndStep().ok());
    const Floats part = Slice(out.Read(), q_size, 0, run.second);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

void CheckAttention(Ops& ops, const HeadShape& heads, DType dtype, int32_t window) {
  const Floats whole = Attend(ops, heads, dtype, window, {{0, 100}}, {});
  Runs singles;
  for (int32_t i = 0; i < 100; ++i) singles.emplace_back(i, 1);
  const Runs beside = {{40, 1}, {3, 25}};
  ExpectSameBits(whole, Attend(ops, heads, dtype, window, singles, {}), "one token at a time");
  ExpectSameBits(
      whole, Attend(ops, heads, dtype, window, {{0, 7}, {7, 1}, {8, 40}, {48, 52}}, {}), "chunks");
  ExpectSameBits(
      whole, Attend(ops, heads, dtype, window, {{0, 33}, {33, 67}}, beside), "beside others");
}

// The rows of a prompt, however it is cut into chunks. On a GPU, a single row may differ from them.
void CheckChunks(Ops& ops, const HeadShape& heads, DType dtype, int32_t window) {
  const Floats whole = Attend(ops, heads, dtype, window, {{0, 300}}, {});
  for (const Runs& runs : {Runs{{0, 120}, {120, 180}},
                           Runs{{0, 50}, {50, 131}, {181, 119}},
                           Runs{{0, 97}, {97, 2}, {99, 201}}}) {
    ExpectSameBits(whole, Attend(ops, heads, dtype, window, runs, {}), "chunks");
    const Runs beside = {{140, 1}, {3, 125}};
    ExpectSameBits(whole, Attend(ops, heads, dtype, window, runs, beside), "beside others");
  }
}

// The logit rows have the same bits when only they are needed.
void CheckLogitRows(Ops& ops, const HeadShape& heads, DType dtype) {
  History history(ops, heads, dtype, 16, {{0, 300}, {133, 290}, {40, 1}, {7, 5}, {0, 260}});
  history.Fill();
  StepPlan plan = history.LastStep();
  // The first sequence has logits in its middle, too, and the last one has none.
  plan.logit_rows.insert(plan.logit_rows.begin(), 150);
  plan.logit_rows.pop_back();
  const Floats values = history.Rows(plan);
  const int64_t q_size = int64_t{heads.q_heads} * heads.head_dim;
  const auto attend = [&](bool only_logit_rows) {
    const DeviceTensor in(
        ops, plan.rows(), static_cast<int64_t>(values.size()) / plan.rows(), values);
    const DeviceTensor all(ops, plan.rows(), q_size);
    const DeviceTensor out(ops, static_cast<int64_t>(plan.logit_rows.size()), q_size);
    EXPECT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
    RopeArgs rope;
    rope.kv_scales = history.kv_scales();
    ops.RopeAndWriteKv(in.view(), heads, rope, 1);
    ops.Attention(in.view(),
                  {.heads = heads,
                   .layer = 1,
                   .scale = 0.2f,
                   .kv_scales = history.kv_scales(),
                   .only_logit_rows = only_logit_rows},
                  all.view());
    ops.GatherLogitRows(all.view(), out.view());
    EXPECT_TRUE(ops.EndStep().ok());
    return out.Read();
  };
  const Floats want = attend(false);
  EXPECT_EQ(std::ranges::count(want, 0.0f), 0);
  ExpectSameBits(want, attend(true), "logit rows");
}

}  // namespace

std::vector<Case> QuantizedKvIndependenceCases() {
  std::vector<Case> cases;
  for (const int32_t dim : {16, 48, 80}) {
    cases.push_back(
        {fmt::format("SameBits_Attention_fp8_dim{}", dim), [=](Ops& ops, const Tolerance&) {
           CheckAttention(ops, {4, 2, dim}, DType::kFp8, 0);
         }});
  }
  cases.push_back({"SameBits_Chunks_fp8_window", [](Ops& ops, const Tolerance&) {
                     CheckChunks(ops, {6, 2, 128}, DType::kFp8, 70);
                   }});
  cases.push_back({"SameBits_Attention_of_logit_rows_fp8", [](Ops& ops, const Tolerance&) {
                     CheckLogitRows(ops, {16, 2, 128}, DType::kFp8);
                   }});
  return cases;
}

std::vector<Case> IndependenceCases() {
  std::vector<Case> cases;
  for (const DType dtype : kWeightTypes) {
    cases.push_back({fmt::format("SameBits_MatMul_{}", Name(dtype)),
                     [=](Ops& ops, const Tolerance&) { CheckMatMul(ops, dtype); }});
  }
  cases.push_back({"SameBits_Experts", [](Ops& ops, const Tolerance&) { CheckExperts(ops); }});
  struct Shape {
    HeadShape heads;
    DType dtype;
    int32_t window;
  };
  for (const Shape& s : {Shape{{9, 3, 64}, DType::kF32, 0},
                         Shape{{4, 4, 24}, DType::kF16, 0},
                         Shape{{8, 1, 16}, DType::kBF16, 0},
                         Shape{{6, 3, 72}, DType::kF32, 19},
                         Shape{{2, 1, 128}, DType::kBF16, 1}}) {
    cases.push_back(
        {fmt::format("SameBits_Attention_{}x{}x{}_{}_window{}",
                     s.heads.q_heads,
                     s.heads.kv_heads,
                     s.heads.head_dim,
                     Name(s.dtype),
                     s.window),
         [=](Ops& ops, const Tolerance&) { CheckAttention(ops, s.heads, s.dtype, s.window); }});
  }
  for (const Shape& s : {Shape{{8, 2, 64}, DType::kBF16, 0},
                         Shape{{8, 2, 64}, DType::kBF16, 70},
                         Shape{{6, 2, 128}, DType::kBF16, 70},
                         Shape{{4, 4, 256}, DType::kBF16, 101}}) {
    cases.push_back(
        {fmt::format("SameBits_Chunks_{}x{}x{}_window{}",
                     s.heads.q_heads,
                     s.heads.kv_heads,
                     s.heads.head_dim,
                     s.window),
         [=](Ops& ops, const Tolerance&) { CheckChunks(ops, s.heads, s.dtype, s.window); }});
  }
  for (const HeadShape& heads : {HeadShape{16, 2, 128}, HeadShape{6, 3, 72}}) {
    cases.push_back(
        {fmt::format("SameBits_Attention_of_logit_rows_dim{}", heads.head_dim),
         [=](Ops& ops, const Tolerance&) { CheckLogitRows(ops, heads, DType::kBF16); }});
  }
  return cases;
}

}  // namespace baton::parity

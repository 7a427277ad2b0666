#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

namespace baton::parity {
namespace {

struct Shape {
  HeadShape heads;
  DType dtype = DType::kF32;
  int32_t block_tokens = 16;
  int32_t window = 0;
  // (context, rows) of each sequence
  std::vector<std::pair<int32_t, int32_t>> sequences;
  bool sinks = false;
  float cap = 0;      // AttentionArgs::cap
  int32_t chunk = 0;  // AttentionArgs::chunk
};

// Below, among and far above the logits.
std::vector<float> SinksOf(int32_t heads) {
  constexpr float kSinks[] = {-4, 0.5f, 3, 40};
  std::vector<float> sinks;
  for (int32_t head = 0; head < heads; ++head) sinks.push_back(kSinks[head % 4] + 0.1f * head);
  return sinks;
}

// Writes k and v of the rows of `plan` and computes their attention. Compares every row with a
// double-precision reference over the k and v that were written.
void CheckStep(Ops& ops,
               const Tolerance& tolerance,
               const Shape& shape,
               History& history,
               const StepPlan& plan) {
  const int32_t q_size = shape.heads.q_heads * shape.heads.head_dim;
  const int32_t kv_size = shape.heads.kv_heads * shape.heads.head_dim;
  DeviceTensor in(ops, plan.rows(), q_size + 2 * kv_size, history.Rows(plan));
  const DeviceTensor out(ops, plan.rows(), q_size);
  ASSERT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
  RopeArgs rope;
  rope.kv_scales = history.kv_scales();
  ops.RopeAndWriteKv(in.view(), shape.heads, rope, 1);
  AttentionArgs args;
  args.heads = shape.heads;
  args.layer = 1;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.heads.head_dim));
  args.window = shape.window;
  args.kv_scales = history.kv_scales();
  const std::vector<float> sinks = SinksOf(shape.heads.q_heads);
  const auto sink_vector = *ops.LoadVector(sinks);
  if (shape.sinks) args.sinks = sink_vector.get();
  args.cap = shape.cap;
  args.chunk = shape.chunk;
  ops.Attention(in.view(), args, out.view());
  const Status status = ops.EndStep();
  ASSERT_TRUE(status.ok()) << status;
  const auto got = out.Read();
  const int32_t group = shape.heads.q_heads / shape.heads.kv_heads;
  size_t at = 0;
  for (size_t row = 0; row < plan.tokens.size(); ++row) {
    const int32_t position = plan.positions[row];
    int32_t begin = shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
    if (shape.chunk > 0) begin = position - position % shape.chunk;
    for (int32_t head = 0; head < shape.heads.q_heads; ++head) {
      const auto sequence = static_cast<size_t>(plan.tokens[row]);
      HeadSoftmax softmax = {.scale = args.scale, .cap = shape.cap};
      if (shape.sinks) softmax.sink = sinks[static_cast<size_t>(head)];
      const std::vector<double> want =
          history.Attend(sequence, position, begin, head, head / group, softmax);
      for (const double value : want) {
        ASSERT_NEAR(got[at], value, tolerance.attention * (1 + std::fabs(value)))
            << "sequence " << sequence << ", position " << position << ", head " << head;
        ++at;
      }
    }
  }
}

void CheckAttention(Ops& ops, const Tolerance& tolerance, const Shape& shape) {
  ModelShape model = {.heads = shape.heads, .hidden = 64, .vocabulary = 64};
  if (shape.sinks) model.variants.push_back(OpVariant::kAttentionSinks);
  if (shape.cap > 0) model.variants.push_back(OpVariant::kSoftCap);
  if (shape.chunk > 0) model.variants.push_back(OpVariant::kChunkedAttention);
  if (!model.variants.empty() && !ops.CheckModel(model).ok()) {
    GTEST_SKIP() << "this backend has no such attention";
  }
  History history(ops, shape.heads, shape.dtype, shape.block_tokens, shape.sequences);
  history.Fill();
  CheckStep(ops, tolerance, shape, history, history.LastStep());
}

// Computes the rows of each sequence one token per step, so that several decode steps follow each
// other.
void CheckDecode(Ops& ops, const Tolerance& tolerance, const Shape& shape) {
  History history(ops, shape.heads, shape.dtype, shape.block_tokens, shape.sequences);
  history.Fill();
  for (int32_t i = 0;; ++i) {
    std::vector<std::pair<int32_t, int32_t>> rows;
    for (const auto& [context, count] : shape.sequences) {
      rows.emplace_back(context + i, i < count ? 1 : 0);
    }
    const StepPlan plan = history.Step(rows);
    if (plan.rows() == 0) return;
    CheckStep(ops, tolerance, shape, history, plan);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// More rows than the device computes at once, with irregular context lengths.
Shape ManyRows(const HeadShape& heads, DType dtype) {
  Shape shape{heads, dtype, 16, 0, {}};
  for (int32_t i = 0; i < 40; ++i) shape.sequences.emplace_back(60 + 37 * i % 191, 1 + i % 3);
  return shape;
}

double RotatedAt(const std::vector<double>& x,
                 const std::vector<float>& frequencies,
                 const RopeArgs& args,
                 int32_t position,
                 size_t i) {
  const size_t half = frequencies.size();
  if (i >= 2 * half) return x[i];
  const bool adjacent = args.pairing == RopePairing::kAdjacent;
  const size_t pair = adjacent ? i / 2 : i % half;
  const bool first = adjacent ? i % 2 == 0 : i < half;
  const double a = adjacent ? x[2 * pair] : x[pair];
  const double b = adjacent ? x[2 * pair + 1] : x[pair + half];
  const double angle = position * static_cast<double>(frequencies[pair]);
  const double c = std::cos(angle) * args.magnitude;
  const double s = std::sin(angle) * args.magnitude;
  return first ? a * c - b * s : a * s + b * c;
}

struct Rope {
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t rotary = 0;
  bool norm = false;
  int32_t context = 0;
  QueryScaling scaling = {};
};

void CheckRope(Ops& ops, const Tolerance& tolerance, const Rope& rope) {
  const auto& [heads, pairing, rotary, norm, context, scaling] = rope;
  const ModelShape model = {
      .heads = heads, .hidden = 64, .vocabulary = 64, .variants = {OpVariant::kQueryScaling}};
  if (scaling.slope != 0 && !ops.CheckModel(model).ok()) {
    GTEST_SKIP() << "this backend does not scale queries";
  }
  History history(ops, heads, DType::kF32, 16, {{context, 5}});
  const StepPlan plan = history.LastStep();
  const int32_t width = (heads.q_heads + 2 * heads.kv_heads) * heads.head_dim;
  const auto qkv = history.Rows(plan);
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(rotary) / 2);
  for (int32_t i = 0; i < rotary / 2; ++i) {
    frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / rotary)));
  }
  const auto q_norm = RandomFloats(static_cast<size_t>(heads.head_dim), 31);
  const auto k_norm = RandomFloats(static_cast<size_t>(heads.head_dim), 32);
  auto frequency_vector = ops.LoadVector(frequencies);
  auto q_vector = ops.LoadVector(q_norm);
  auto k_vector = ops.LoadVector(k_norm);
  RopeArgs args;
  args.inverse_frequencies = rotary > 0 ? frequency_vector->get() : nullptr;
  args.magnitude = 1.25f;
  args.pairing = pairing;
  args.q_norm = norm ? q_vector->get() : nullptr;
  args.k_norm = norm ? k_vector->get() : nullptr;
  args.norm_epsilon = 1e-6f;
  args.query_scaling = scaling;
  const DeviceTensor in(ops, plan.rows(), width, qkv);
  ASSERT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
  ops.RopeAndWriteKv(in.view(), heads, args, 0);
  ASSERT_TRUE(ops.EndStep().ok());
  const auto got = in.Read();
  for (int32_t row = 0; row < 5; ++row) {
    for (int32_t head = 0; head < heads.q_heads + heads.kv_heads; ++head) {
      const auto base =
          static_cast<size_t>(row) * width + static_cast<size_t>(head) * heads.head_dim;
      std::vector<double> x(qkv.begin() + static_cast<ptrdiff_t>(base),
                            qkv.begin() + static_cast<ptrdiff_t>(base) + heads.head_dim);
      if (norm) {
        const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
        const double factor = 1 / std::sqrt(squares / heads.head_dim + 1e-6);
        const auto& weight = head < heads.q_heads ? q_norm : k_norm;
        for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * weight[i];
      }
      const double steps = std::floor((context + row + 1.0) / scaling.step);
      const bool scaled = head < heads.q_heads;
      const double factor = scaled ? 1 + double{scaling.slope} * std::log(1 + steps) : 1;
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = factor * RotatedAt(x, frequencies, args, context + row, i);
        ASSERT_NEAR(
            got[base + i], want, tolerance.elementwise * 10 + tolerance.stored * std::fabs(want))
            << "row " << row << ", head " << head << ", dimension " << i;
      }
    }
  }
}

void CheckBadSteps(Ops& ops) {
  const HeadShape heads{2, 1, 16};
  History history(ops, heads, DType::kF32, 16, {{0, 3}});
  const StepPlan good = history.LastStep();
  const auto code = [&](const StepPlan& plan, const KvView& view) {
    return ops.BeginStep(plan.input(), view).code();
  };
  const KvView view = history.cache().view;
  StepPlan plan = good;
  plan.tables[0] = view.blocks;
  EXPECT_EQ(code(plan, view), StatusCode::kInvalidArgument) << "a block outside the arena";
  plan = good;
  plan.tables.clear();
  EXPECT_EQ(code(plan, view), StatusCode::kInvalidArgument) << "a short block table";
  plan = good;
  plan.sequences[0].row_count = 2;
  EXPECT_EQ(code(plan, view), StatusCode::kInvalidArgument) << "rows of no sequence";
  plan = good;
  plan.logit_rows = {3};
  EXPECT_EQ(code(plan, view), StatusCode::kInvalidArgument) << "logits of no row";
  KvView odd = view;
  odd.block_tokens = 10;
  EXPECT_EQ(code(good, odd), StatusCode::kInvalidArgument) << "blocks of 10 tokens";
  EXPECT_EQ(code(good, view), StatusCode::kOk);
  EXPECT_TRUE(ops.EndStep().ok());
}

void CheckCopyBlocks(Ops& ops) {
  const HeadShape heads{1, 1, 8};
  Cache cache(ops, DType::kF32, 2, heads, 16, 4);
  std::vector<std::byte> bytes(static_cast<size_t>(cache.view.block_stride), std::byte{7});
  ASSERT_TRUE(ops.device().CopyIn(*cache.buffer, 0, bytes).ok());
  // The copies run in order: block 1 receives the new content of block 2.
  const BlockCopy copies[] = {{0, 2}, {2, 1}, {3, 3}};
  ASSERT_TRUE(ops.CopyBlocks(cache.view, copies).ok());
  std::vector<std::byte> all(cache.buffer->size());
  ASSERT_TRUE(ops.device().CopyOut(*cache.buffer, 0, all).ok());
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t block = i / bytes.size();
    ASSERT_EQ(all[i], block < 3 ? std::byte{7} : std::byte{0}) << i;
  }
  const BlockCopy outside[] = {{0, 4}};
  EXPECT_EQ(ops.CopyBlocks(cache.view, outside).code(), StatusCode::kInvalidArgument);
}

// Single rows and chunks with sinks and caps, for kernels that take a cache in bf16.
void AddSoftmaxCases(std::vector<Case>& cases) {
  for (const auto& [name, sinks, cap] : std::vector<std::tuple<std::string, bool, float>>{
           {"sinks", true, 0}, {"cap", false, 0.7f}, {"cap_and_sinks", true, 2}}) {
    for (const int32_t dim : {64, 128, 256}) {
      Shape shape{{16, 2, dim}, DType::kBF16, 16, 0, {{0, 1}, {100, 33}, {0, 131}, {211, 1}}};
      shape.sinks = sinks;
      shape.cap = cap;
      cases.push_back(
          {fmt::format("Attention_bf16_{}_dim{}", name, dim),
           [=](Ops& ops, const Tolerance& tolerance) { CheckAttention(ops, tolerance, shape); }});
      shape.window = 33;
      shape.sequences = {{20, 20}, {150, 4}};
      cases.push_back(
          {fmt::format("Attention_decode_{}_dim{}", name, dim),
           [=](Ops& ops, const Tolerance& tolerance) { CheckDecode(ops, tolerance, shape); }});
    }
  }
}

}  // namespace

std::vector<Case> AttentionCases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const Shape& shape) {
    cases.push_back({"Attention_" + name, [=](Ops& ops, const Tolerance& tolerance) {
                       CheckAttention(ops, tolerance, shape);
                     }});
  };
  for (const int32_t dim : {8, 16, 24, 64, 80, 96, 128, 256}) {
    add(fmt::format("dim{}", dim),
        {{4, 2, dim}, DType::kF32, 16, 0, {{0, 1}, {37, 1}, {0, 21}, {19, 14}}});
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    add(fmt::format("cache_{}", Name(dtype)),
        {{6, 2, 72}, dtype, 16, 0, {{5, 1}, {50, 3}, {0, 40}}});
  }
  add("block32", {{3, 3, 64}, DType::kF32, 32, 0, {{0, 33}, {70, 1}}});
  add("group_of_9", {{9, 1, 64}, DType::kBF16, 16, 0, {{15, 2}, {16, 1}, {31, 9}}});
  // Chunks that begin inside a block, inside the rows that are computed together, and before them.
  Shape chunked{{4, 2, 16}, DType::kF32, 16, 0, {{0, 60}, {37, 1}, {35, 12}, {20, 1}, {19, 3}}};
  for (const int32_t chunk : {1, 20, 32}) {
    chunked.chunk = chunk;
    add(fmt::format("chunks_of_{}", chunk), chunked);
  }
  add("window", {{4, 2, 32}, DType::kF32, 16, 7, {{0, 40}, {33, 1}, {100, 12}}});
  add("window_of_1", {{2, 1, 16}, DType::kF16, 16, 1, {{0, 5}, {30, 3}}});
  add("window_of_48", {{3, 1, 64}, DType::kF32, 16, 48, {{0, 130}, {200, 1}}});
  add("long", {{3, 1, 64}, DType::kF32, 16, 0, {{3000, 2}}});
  add("sinks", {{8, 2, 64}, DType::kF32, 16, 0, {{0, 1}, {37, 1}, {0, 21}, {19, 14}}, true});
  add("sinks_group_of_9", {{9, 1, 64}, DType::kBF16, 16, 0, {{15, 2}, {16, 1}, {31, 9}}, true});
  add("sinks_window", {{4, 2, 32}, DType::kF16, 16, 7, {{0, 40}, {33, 1}, {100, 12}}, true});
  add("cap", {{4, 2, 64}, DType::kF32, 16, 0, {{0, 1}, {37, 1}, {0, 21}}, false, 0.7f});
  add("cap_window", {{4, 2, 24}, DType::kBF16, 16, 7, {{0, 40}, {33, 1}}, false, 50});
  add("cap_and_sinks", {{4, 1, 32}, DType::kF32, 16, 0, {{0, 20}, {33, 1}}, true, 2});
  for (const int32_t dim : {64, 96, 128, 256}) {
    add(fmt::format("bf16_dim{}", dim),
        {{8, 2, dim}, DType::kBF16, 16, 0, {{0, 1}, {100, 33}, {0, 131}, {211, 1}}});
    cases.push_back(
        {fmt::format("Attention_decode_dim{}", dim), [=](Ops& ops, const Tolerance& tolerance) {
           const Shape shape{{8, 2, dim}, DType::kBF16, 16, 0, {{0, 5}, {13, 8}, {300, 3}}};
           CheckDecode(ops, tolerance, shape);
         }});
  }
  for (const int32_t kv_heads : {4, 8}) {
    cases.push_back(
        {fmt::format("Attention_decode_many_rows_kv{}", kv_heads),
         [=](Ops& ops, const Tolerance& tolerance) {
           CheckDecode(ops, tolerance, ManyRows({2 * kv_heads, kv_heads, 128}, DType::kBF16));
         }});
  }
  AddSoftmaxCases(cases);
  cases.push_back({"Attention_decode_window", [](Ops& ops, const Tolerance& tolerance) {
                     const Shape shape{{4, 2, 64}, DType::kBF16, 16, 33, {{20, 20}, {150, 4}}};
                     CheckDecode(ops, tolerance, shape);
                   }});
  int index = 0;
  for (const Rope& r : {Rope{{3, 1, 64}, RopePairing::kHalves, 64, false, 0},
                        Rope{{3, 1, 64}, RopePairing::kAdjacent, 64, false, 1000},
                        Rope{{2, 2, 80}, RopePairing::kHalves, 32, true, 3},
                        Rope{{4, 2, 128}, RopePairing::kHalves, 128, true, 100},
                        Rope{{1, 1, 8}, RopePairing::kAdjacent, 4, false, 9},
                        Rope{{3, 1, 16}, RopePairing::kAdjacent, 0, false, 29, {0.5f, 8}}}) {
    cases.push_back({fmt::format("Rope_{}", index++),
                     [=](Ops& ops, const Tolerance& tolerance) { CheckRope(ops, tolerance, r); }});
  }
  cases.push_back(
      {"Step_refuses_bad_input", [](Ops& ops, const Tolerance&) { CheckBadSteps(ops); }});
  cases.push_back({"CopyBlocks", [](Ops& ops, const Tolerance&) { CheckCopyBlocks(ops); }});
  return cases;
}

std::vector<Case> QuantizedKvCases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const Shape& shape) {
    cases.push_back({"Attention_fp8_" + name, [=](Ops& ops, const Tolerance& tolerance) {
                       CheckAttention(ops, tolerance, shape);
                     }});
  };
  for (const int32_t dim : {16, 48, 64, 96, 128, 256}) {
    add(fmt::format("dim{}", dim),
        {{8, 2, dim}, DType::kFp8, 16, 0, {{0, 1}, {100, 33}, {0, 131}, {211, 1}}});
    cases.push_back(
        {fmt::format("Attention_fp8_decode_dim{}", dim), [=](Ops& ops, const Tolerance& tolerance) {
           const Shape shape{
               {8, 2, dim}, DType::kFp8, 16, 0, {{0, 5}, {13, 8}, {300, 3}, {2000, 1}}};
           CheckDecode(ops, tolerance, shape);
         }});
  }
  for (const int32_t kv_heads : {4, 8}) {
    cases.push_back(
        {fmt::format("Attention_fp8_decode_many_rows_kv{}", kv_heads),
         [=](Ops& ops, const Tolerance& tolerance) {
           CheckDecode(ops, tolerance, ManyRows({2 * kv_heads, kv_heads, 128}, DType::kFp8));
         }});
  }
  add("block32", {{3, 3, 64}, DType::kFp8, 32, 0, {{0, 33}, {70, 1}}});
  add("group_of_9", {{9, 1, 64}, DType::kFp8, 16, 0, {{15, 2}, {16, 1}, {31, 9}}});
  add("window", {{4, 2, 64}, DType::kFp8, 16, 7, {{0, 40}, {33, 1}, {100, 12}}});
  // Chunks long enough for the kernels of long prompts, with and without cached tokens before them.
  add("chunks", {{16, 2, 128}, DType::kFp8, 16, 0, {{0, 260}, {133, 290}, {40, 1}}});
  add("long", {{4, 1, 128}, DType::kFp8, 16, 0, {{9000, 1}}});
  return cases;
}

std::vector<Case> LongCases() {
  constexpr int32_t kContext = 131072;
  std::vector<Case> cases;
  for (const int32_t rows : {1, 5}) {
    cases.push_back(
        {fmt::format("Attention_{}_rows_after_{}", rows, kContext - rows),
         [=](Ops& ops, const Tolerance& tolerance) {
           const Shape shape{{2, 1, 128}, DType::kBF16, 16, 0, {{kContext - rows, rows}}};
           CheckAttention(ops, tolerance, shape);
         }});
  }
  return cases;
}

}  // namespace baton::parity

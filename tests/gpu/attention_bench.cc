// Times attention with the shape of Llama-3.1-8B (32 query heads over 8 KV heads of size 128, bf16,
// KV blocks of 16 tokens) as a CUDA graph of 32 layers, and some decoding steps with the heads that
// a rank holds under tensor parallelism, and with KV in FP8. Prints one JSON object on each line.
// With an argument, only cases whose names contain the argument run.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/quantile.h"
#include "tests/gpu/attention_harness.h"
#include "tests/gpu/graph_timer.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda::testing {
namespace {

constexpr int32_t kLayers = 32;
constexpr int kReplays = 21;

struct Case {
  std::string name;
  Lengths lengths;
};

Lengths Repeat(size_t count, int32_t context, int32_t rows) {
  return Lengths(count, {context, rows});
}

Lengths Join(Lengths a, const Lengths& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Case> Cases() {
  Lengths ragged;
  for (int32_t i = 0; i < 64; ++i) ragged.emplace_back(128 + (i * 37 % 64) * 3840 / 63 - 1, 1);
  return {
      {"decode 1 x 1024", Repeat(1, 1023, 1)},
      {"decode 1 x 2048", Repeat(1, 2047, 1)},
      {"decode 1 x 4096", Repeat(1, 4095, 1)},
      {"decode 1 x 6144", Repeat(1, 6143, 1)},
      {"decode 1 x 8192", Repeat(1, 8191, 1)},
      {"decode 1 x 32768", Repeat(1, 32767, 1)},
      {"decode 1 x 131072", Repeat(1, 131071, 1)},
      {"decode 2 x 8192", Repeat(2, 8191, 1)},
      {"decode 4 x 2000", Repeat(4, 1999, 1)},
      {"decode 4 x 3000", Repeat(4, 2999, 1)},
      {"decode 8 x 2048", Repeat(8, 2047, 1)},
      {"decode 12 x 3000", Repeat(12, 2999, 1)},
      {"decode 16 x 2048", Repeat(16, 2047, 1)},
      {"decode 24 x 2048", Repeat(24, 2047, 1)},
      {"decode 32 x 2048", Repeat(32, 2047, 1)},
      {"decode 40 x 2048", Repeat(40, 2047, 1)},
      {"decode 64 x 2048", Repeat(64, 2047, 1)},
      {"decode 64 x 2100", Repeat(64, 2099, 1)},
      {"decode 64 ragged 128..3968", ragged},
      {"decode 32 x 2300", Repeat(32, 2299, 1)},
      {"decode 20 x 300 and 8192", Join(Repeat(20, 299, 1), {{8191, 1}})},
      {"decode 32 x 2300 and 8192", Join(Repeat(32, 2299, 1), {{8191, 1}})},
      {"decode 32 x 2300 and 32768", Join(Repeat(32, 2299, 1), {{32767, 1}})},
      {"decode 60 x 1024 and 2 x 32768", Join(Repeat(60, 1023, 1), Repeat(2, 32767, 1))},
      {"decode 256 x 512", Repeat(256, 511, 1)},
      {"decode 256 x 520", Repeat(256, 519, 1)},
      {"decode 256 x 64", Repeat(256, 63, 1)},
      {"prefill 8192", {{0, 8192}}},
      {"prefill 2048", {{0, 2048}}},
      {"prefill 512", {{0, 512}}},
      {"prefill 2048 after 6144", {{6144, 2048}}},
      {"prefill 4 x 2048", Repeat(4, 0, 2048)},
      {"prefill 512 after 7680", {{7680, 512}}},
      {"prefill 2048 after 30000", {{30000, 2048}}},
      {"prefill 100 after 30000", {{30000, 100}}},
      {"prefill 16 after 100000", {{100000, 16}}},
      {"mixed 32 x 2048 and 480 after 7680", Join(Repeat(32, 2047, 1), {{7680, 480}})},
  };
}

// The KV heads that a rank holds, with four query heads each.
struct Rank {
  int32_t kv_heads;
  DType kv_dtype;

  bool IsWhole() const { return kv_heads == 8 && kv_dtype == DType::kBF16; }
  std::string Suffix() const {
    if (IsWhole()) return "";
    return ", " + std::to_string(kv_heads) + " KV heads" +
           (kv_dtype == DType::kFp8 ? " in fp8" : "");
  }
};

std::vector<Case> CasesOf(const Rank& rank) {
  std::vector<Case> cases = Cases();
  if (rank.IsWhole()) return cases;
  const std::vector<std::string> names = {"decode 1 x 1024",
                                          "decode 1 x 8192",
                                          "decode 64 x 2100",
                                          "decode 64 ragged 128..3968",
                                          "decode 256 x 520"};
  std::erase_if(cases,
                [&](const Case& which) { return std::ranges::count(names, which.name) == 0; });
  for (Case& which : cases) which.name += rank.Suffix();
  return cases;
}

double PlanMicroseconds(Fixture& fixture, const AttentionShape& shape) {
  auto fixed = *StepBuffer::Create(size_t{4} << 20);
  std::vector<double> times;
  for (int i = 0; i < 50; ++i) {
    fixed->Clear();
    const auto begin = std::chrono::steady_clock::now();
    Check(fixture.attention().Plan(shape, fixture.step(), fixture.kv(), *fixed).status(), "Plan");
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  return Median(times);
}

void Measure(Fixture& fixture, const FixtureShape& shape, const Case& which, const char* mode) {
  const bool decode = which.name.starts_with("decode");
  const auto count = static_cast<int32_t>(which.lengths.size());
  fixture.Begin(which.lengths, decode ? count : 0);
  const AttentionPlan plan = fixture.Plan();
  fixture.Launch(plan, kLayers - 1);
  const double error = fixture.Error(kLayers - 1);
  const double micros = TimeGraph(fixture.stream(),
                                  kReplays,
                                  [&] {
                                    for (int32_t layer = 0; layer < kLayers; ++layer)
                                      fixture.Launch(plan, layer);
                                  }) /
                        kLayers;
  double tokens = 0;
  double pairs = 0;
  for (const auto& [context, rows] : which.lengths) {
    tokens += context + rows;
    pairs += static_cast<double>(rows) * context + 0.5 * rows * (rows + 1);
  }
  const double number_bytes = shape.kv_dtype == DType::kFp8 ? 1 : 2;
  const double bytes = tokens * 2 * number_bytes * shape.shape.kv_heads * shape.shape.head_dim;
  const double flops = 4 * pairs * shape.shape.q_heads * shape.shape.head_dim;
  std::printf(
      "{\"bench\": \"attention\", \"case\": \"%s\", \"mode\": \"%s\", \"us_per_layer\": %.2f, "
      "\"gb_per_s\": %.0f, \"tflop_per_s\": %.0f, \"plan_us\": %.1f, \"pieces\": [%d, %d, %d], "
      "\"cluster\": [%d, %d], "
      "\"merged_rows\": %d, \"error\": %.4f}\n",
      which.name.c_str(),
      mode,
      micros,
      bytes / micros / 1e3,
      flops / micros / 1e6,
      PlanMicroseconds(fixture, shape.shape),
      plan.rows.work_tiles,
      plan.chunks.work_tiles,
      plan.ragged.empty() ? 0 : plan.ragged[0].work_tiles,
      plan.cluster.rows,
      plan.cluster.rows > 0 ? plan.cluster.splits : 0,
      plan.rows.combine.rows + plan.chunks.combine.rows,
      error);
  std::fflush(stdout);
}

void RunRank(const Rank& rank, std::string_view filter) {
  FixtureShape shape;
  shape.shape.q_heads = 4 * rank.kv_heads;
  shape.shape.kv_heads = rank.kv_heads;
  shape.kv_dtype = rank.kv_dtype;
  shape.shape.head_dim = 128;
  shape.shape.scale = 0.08838835f;
  shape.layers = kLayers;
  shape.tokens = (1 << 17) + 4096;
  const std::pair<const char*, AttentionOptions> modes[] = {
      {"chosen", {}},
      {"tiles", {false, DecodeKernel::kFlash2}},
      {"cluster", {false, DecodeKernel::kCluster}},
      {"shares", {false, DecodeKernel::kStreamK}},
      {"deterministic", {true, DecodeKernel::kAuto}},
  };
  for (const auto& [mode, options] : modes) {
    Fixture fixture(shape, options);
    for (const Case& which : CasesOf(rank)) {
      if (which.name.find(filter) == std::string::npos) continue;
      const bool decode = which.name.starts_with("decode");
      if (!decode && options.decode != DecodeKernel::kAuto) continue;
      Measure(fixture, shape, which, mode);
    }
  }
}

int Run(std::string_view filter) {
  if (!HaveGpu()) {
    std::fprintf(stderr, "gpu_attention_bench: there is no GPU of sm_80 or newer\n");
    return 1;
  }
  for (const DType dtype : {DType::kBF16, DType::kFp8}) {
    for (const int32_t kv_heads : {8, 4, 2, 1}) RunRank({kv_heads, dtype}, filter);
  }
  return 0;
}

}  // namespace
}  // namespace baton::cuda::testing

int main(int argc, char** argv) {
  return baton::cuda::testing::Run(argc > 1 ? argv[1] : "");
}

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/packed_skinny.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "tests/gpu/gemm_reference.h"
#include "tests/gpu/graph_timer.h"

// Times GEMMs of packed weights: each GEMM of a layer of Llama-3.1-8B by itself, and all four one
// behind the other, beside the skinny GEMM or the GEMV of bf16 and a copy of memory. A measurement
// is a CUDA graph of 32 layers, each with its own weights. Prints one JSON line for each.
// Usage: gpu_packed_gemm_bench [all | plans | profile] [ROWS…], by default 1 8 16 32 64 rows.
//   all: every format, by default integers of 4 bits in groups of 128. plans: many plans of each
//   GEMM. profile: one launch of each GEMM, for a profiler.
namespace baton::cuda {
namespace {

using testing::Check;
using testing::TimeGraph;

constexpr int32_t kHidden = 4096;
constexpr int32_t kQkv = 6144;
constexpr int32_t kWidth = 14336;
constexpr int32_t kMaxRows = 64;
constexpr int kLayers = 32;
constexpr int kRepeats = 15;

struct NamedFormat {
  const char* name;
  PackedFormat format;
};
constexpr NamedFormat kFormats[] = {
    {"u4 g128", {.number = DType::kU4, .group = 128, .zero = 8}},
    {"u4 g128 zeros", {.number = DType::kU4, .group = 128, .zeros = true}},
    {"u4 g32 zeros", {.number = DType::kU4, .group = 32, .zeros = true}},
    {"mxfp4", {.number = DType::kFp4, .scale = ScaleType::kE8m0, .group = 32}},
    {"nvfp4", {.number = DType::kFp4, .scale = ScaleType::kFp8, .group = 16}},
    {"i8 g128", {.number = DType::kI8, .group = 128, .zero = 128}},
    {"fp8 g128", {.number = DType::kFp8, .group = 128}},
    {"bf16", {}},
};

class Bench final {
 public:
  Bench() {
    int sms = 0;
    Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    sm_count_ = sms;
    limits_ = FindPackedLimits(sms);
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Reserve(weights_, kLayers * LayerBytes(kFormats[std::size(kFormats) - 1]));
    for (DeviceMemory* memory : {&x_, &out_, &residual_}) {
      Reserve(*memory, int64_t{kMaxRows} * 2 * kWidth * 4);
    }
    Check(cudaDeviceSynchronize());
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // The rate at which a copy reads and writes memory.
  void TimeCopy() {
    const size_t bytes = weights_.size() / 2;
    const double us = TimeGraph(stream_, kRepeats, [&] {
      Check(cudaMemcpyAsync(
          weights_.at(), weights_.at() + bytes, bytes, cudaMemcpyDeviceToDevice, stream_));
    });
    Print("copy", "", "", 0, us, 2 * static_cast<double>(bytes));
  }

  void Run(const NamedFormat& format, int32_t rows, bool plans) {
    const std::vector<std::string> names = {"qkv", "o", "gate_up", "down"};
    for (size_t i = 0; i < names.size(); ++i) {
      TimeAll(format, names[i], "", rows, [&](int layer) {
        return std::vector{Gemms(format, rows, layer)[i]};
      });
      if (plans && format.format.is_packed()) TimePlans(format, names[i], rows, i);
    }
    TimeAll(format, "layer", "", rows, [&](int layer) {
      const auto all = Gemms(format, rows, layer);
      return std::vector(all.begin(), all.end());
    });
    if (!plans) return;
    for (const int32_t shared : {96 << 10, 112 << 10, 160 << 10}) {
      limits_.shared_bytes = shared;
      TimeAll(format, "layer", fmt::format("{} KB", shared >> 10), rows, [&](int layer) {
        const auto all = Gemms(format, rows, layer);
        return std::vector(all.begin(), all.end());
      });
      limits_ = FindPackedLimits(sm_count_);
    }
  }

  void Profile(int32_t rows) {
    for (const GemmProblem& problem : Gemms(kFormats[0], rows, 0)) Launch(problem);
    Check(cudaStreamSynchronize(stream_));
  }

 private:
  static void Reserve(DeviceMemory& memory, int64_t bytes) {
    Check(memory.Reserve(static_cast<size_t>(bytes)));
    Check(testing::FillRandom(memory.at<__nv_bfloat16>(), bytes / 2, 1, 0.02f));
  }
  static int64_t Bytes(const NamedFormat& format, int64_t n, int64_t k) {
    return format.format.is_packed() ? format.format.Bytes(n, k) : n * k * 2;
  }
  static int64_t LayerBytes(const NamedFormat& format) {
    return Bytes(format, kQkv + kHidden + 2 * kWidth, kHidden) + Bytes(format, kHidden, kWidth);
  }

  static void Print(const std::string& format,
                    const std::string& what,
                    const std::string& how,
                    int32_t rows,
                    double us,
                    double bytes) {
    fmt::print(
        "{{\"format\": \"{}\", \"what\": \"{}\", \"how\": \"{}\", \"rows\": {}, \"us\": {:.2f}, "
        "\"gb_per_s\": {:.0f}}}\n",
        format,
        what,
        how,
        rows,
        us,
        bytes / us * 1e-3);
    std::fflush(stdout);
  }

  // qkv; o, which adds to the residual; gate and up with silu · up; down, which adds too.
  std::array<GemmProblem, 4> Gemms(const NamedFormat& format, int32_t rows, int layer) const {
    std::array<GemmProblem, 4> all;
    const std::array<std::pair<int32_t, int32_t>, 4> shapes = {
        {{kQkv, kHidden}, {kHidden, kHidden}, {2 * kWidth, kHidden}, {kHidden, kWidth}}};
    int64_t at = layer * LayerBytes(format);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto [n, k] = shapes[i];
      GemmProblem& problem = all[i];
      problem.x = x_.at();
      problem.weight = weights_.at() + at;
      problem.packed = format.format;
      if (format.format.is_packed()) problem.weight_dtype = format.format.number;
      problem.silu_mul = i == 2;
      problem.accumulate = i % 2 == 1;
      problem.out = problem.accumulate ? residual_.at() : out_.at();
      problem.out_dtype = problem.accumulate ? DType::kF32 : DType::kBF16;
      problem.rows = rows;
      problem.n = n;
      problem.k = problem.x_stride = k;
      problem.out_stride = problem.silu_mul ? n / 2 : n;
      at += Bytes(format, n, k);
    }
    return all;
  }

  void Launch(const GemmProblem& problem) const {
    if (problem.packed.is_packed()) {
      Check(LaunchPackedGemm(problem, PlanPackedGemm(problem, limits_), stream_));
    } else if (problem.rows == 1) {
      Check(LaunchGemv(problem, sm_count_, stream_));
    } else {
      Check(LaunchSkinnyGemm(problem, sm_count_, stream_));
    }
  }

  // Times the GEMMs that `of` gives for each layer.
  void TimeAll(const NamedFormat& format,
               const std::string& what,
               const std::string& how,
               int32_t rows,
               const std::function<std::vector<GemmProblem>(int)>& of) {
    const double us = TimeGraph(stream_, kRepeats, [&] {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (const GemmProblem& problem : of(layer)) Launch(problem);
      }
    });
    double bytes = 0;
    for (const GemmProblem& problem : of(0)) {
      bytes += static_cast<double>(Bytes(format, problem.n, problem.k));
    }
    Print(format.name, what, how, rows, us / kLayers, bytes);
  }

  void TimePlans(const NamedFormat& format, const std::string& name, int32_t rows, size_t gemm) {
    std::vector<SkinnyPlan> timed;
    for (const int32_t cluster : {0, 1, 2, 4}) {
      for (const int32_t matrices : {0, 1, 2, 3, 4}) {
        for (const int32_t parts : {0, 1, 2}) {
          for (const int32_t stage : {8 << 10, 16 << 10}) {
            for (const int32_t shared : {208 << 10, 112 << 10}) {
              PackedLimits limits = FindPackedLimits(sm_count_);
              limits.cluster = cluster;
              limits.tile_matrices = matrices;
              limits.parts = parts;
              limits.stage_bytes = stage;
              limits.shared_bytes = shared;
              const SkinnyPlan plan = PlanPackedGemm(Gemms(format, rows, 0)[gemm], limits);
              if (std::ranges::find(timed, plan) != timed.end()) continue;
              timed.push_back(plan);
              limits_ = limits;
              const std::string how = fmt::format(
                  "{} clusters of {}, {} × {} matrices, {} parts, {} stages of {} spans, {} KB",
                  plan.clusters,
                  plan.cluster,
                  plan.tiles,
                  plan.matrices,
                  plan.warp_groups / plan.matrices,
                  plan.stages,
                  plan.spans,
                  plan.shared_bytes >> 10);
              TimeAll(format, name, how, rows, [&](int layer) {
                return std::vector{Gemms(format, rows, layer)[gemm]};
              });
            }
          }
        }
      }
    }
    limits_ = FindPackedLimits(sm_count_);
  }

  int sm_count_ = 0;
  cudaStream_t stream_ = nullptr;
  PackedLimits limits_;
  DeviceMemory weights_;
  DeviceMemory x_;
  DeviceMemory out_;
  DeviceMemory residual_;
};

int Main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const bool named = how == "all" || how == "plans" || how == "profile";
  std::vector<int32_t> rows;
  for (int i = named ? 2 : 1; i < argc; ++i) rows.push_back(std::clamp(std::atoi(argv[i]), 1, 64));
  if (rows.empty()) rows = {1, 8, 16, 32, 64};
  Bench bench;
  if (how == "profile") {
    for (const int32_t count : rows) bench.Profile(count);
    return 0;
  }
  bench.TimeCopy();
  for (const NamedFormat& format : kFormats) {
    const bool first = &format == &kFormats[0] || !format.format.is_packed();
    if (!first && how != "all") continue;
    for (const int32_t count : rows) bench.Run(format, count, how == "plans");
  }
  return 0;
}

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  return baton::cuda::Main(argc, argv);
}

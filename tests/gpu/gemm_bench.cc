#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/rows/row_kernels.h"
#include "tests/gpu/gemm_reference.h"
#include "tests/gpu/graph_timer.h"

// Times GEMMs with few rows, our kernels and cuBLASLt: each shape of Llama-3.1-8B by itself, and
// whole layers. A measurement is a CUDA graph of 32 layers, each with its own weights. Prints one
// JSON line for each measurement.
// Usage: gpu_gemm_bench [ours | fp8 | profile] [ROWS…], by default 2 4 8 16 32 64 128 rows.
//   ours: without cuBLASLt. fp8: FP8 operands. profile: one launch of each GEMM, for a profiler.
namespace baton::cuda {
namespace {

using testing::Check;
using testing::TimeGraph;

constexpr int32_t kHidden = 4096;
constexpr int32_t kQkv = 6144;
constexpr int32_t kWidth = 14336;
constexpr int32_t kVocabulary = 128256;
constexpr int32_t kMaxRows = 256;
constexpr int kLayers = 32;
constexpr int kHeads = 4;
constexpr int kRepeats = 21;
constexpr float kEpsilon = 1e-5f;

void Print(const std::string& what,
           const std::string& how,
           int32_t rows,
           double microseconds,
           double bytes) {
  fmt::print(
      "{{\"what\": \"{}\", \"how\": \"{}\", \"rows\": {}, \"us\": {:.2f}, \"gb_per_s\": {:.0f}}}\n",
      what,
      how,
      rows,
      microseconds,
      bytes / microseconds * 1e-3);
  std::fflush(stdout);
}

class Bench final {
 public:
  // `theirs`: times cuBLASLt as well. `fp8`: operands are FP8.
  Bench(bool theirs, bool fp8) : theirs_(theirs), fp8_(fp8) {
    auto device = ReadDeviceProperties();
    Check(device.status());
    sm_count_ = device->sm_count;
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    // With portable kernels, Gemm uses cuBLASLt alone.
    device->portable = true;
    auto gemm = Gemm::Create(*device, {});
    Check(gemm.status());
    gemm_ = *std::move(gemm);
    limits_ = FindSkinnyLimits(sm_count_);
    fmt::print("{{\"clusters_of_2\": {}, \"clusters_of_4\": {}}}\n",
               limits_.clusters_of_2,
               limits_.clusters_of_4);
    constexpr int64_t kWeights =
        int64_t{kLayers} * kHidden * (kQkv + kHidden + 3 * int64_t{kWidth});
    Reserve(weights_, kWeights);
    for (DeviceMemory* memory : {&residual_, &normal_, &attended_, &qkv_, &gate_up_, &hidden_}) {
      Reserve(*memory, int64_t{kMaxRows} * 2 * kWidth);
    }
    Check(cudaMemset(residual_.at(), 0, residual_.size()));
    Check(logits_.Reserve(size_t{kMaxRows} * kVocabulary * 4));
    Check(norm_.Reserve(size_t{kVocabulary} * 4));
    const std::vector<float> ones(kVocabulary, 1.0f);
    Check(cudaMemcpy(norm_.at(), ones.data(), ones.size() * 4, cudaMemcpyHostToDevice));
    Check(cudaDeviceSynchronize());
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Launches each of our GEMMs once, for a profiler.
  void Profile(int32_t rows) {
    rows_ = rows;
    for (const GemmProblem& problem : {Qkv(0), Out(0), GateUp(0), Down(0)}) Ours(problem);
    Check(cudaStreamSynchronize(stream_));
  }

  void Run(int32_t rows) {
    rows_ = rows;
    TimeShape(
        "qkv", [&](int i) { return Qkv(i); }, kLayers);
    TimeShape(
        "o", [&](int i) { return Out(i); }, kLayers);
    TimeShape(
        "gate_up", [&](int i) { return GateUp(i); }, kLayers);
    TimeGated();
    TimeShape(
        "down", [&](int i) { return Down(i); }, kLayers);
    TimeShape(
        "head", [&](int i) { return Head(i); }, kHeads);
    TimeMlps();
    TimeLayers();
  }

 private:
  static void Reserve(DeviceMemory& memory, int64_t numbers) {
    Check(memory.Reserve(static_cast<size_t>(numbers) * 2));
    Check(testing::FillRandom(memory.at<__nv_bfloat16>(), numbers, 1, 0.02f));
  }

  GemmProblem Make(const DeviceMemory& x, int64_t weight, int32_t n, int32_t k, void* out) const {
    GemmProblem problem;
    problem.x = x.at<__nv_bfloat16>();
    problem.weight = weights_.at() + weight * number_bytes();
    if (fp8_) {
      problem.weight_dtype = problem.x_dtype = DType::kFp8;
      problem.weight_scales = problem.x_scales = norm_.at<float>();
    }
    problem.out = out;
    problem.rows = rows_;
    problem.n = problem.out_stride = n;
    problem.k = problem.x_stride = k;
    return problem;
  }
  int64_t number_bytes() const { return fp8_ ? 1 : 2; }
  // `problem` without scales, as cuBLASLt needs it.
  GemmProblem Theirs(GemmProblem problem) const {
    problem.weight_scales = problem.x_scales = nullptr;
    return problem;
  }
  static int64_t Layer(int i) {
    return i * (int64_t{kHidden} * (kQkv + kHidden + 3 * int64_t{kWidth}));
  }
  GemmProblem Qkv(int i) const { return Make(normal_, Layer(i), kQkv, kHidden, qkv_.at()); }
  GemmProblem Out(int i) const {
    const int64_t at = Layer(i) + int64_t{kHidden} * kQkv;
    GemmProblem problem = Make(attended_, at, kHidden, kHidden, residual_.at());
    problem.out_dtype = DType::kF32;
    problem.accumulate = true;
    return problem;
  }
  GemmProblem GateUp(int i) const {
    const int64_t at = Layer(i) + int64_t{kHidden} * (kQkv + kHidden);
    return Make(normal_, at, 2 * kWidth, kHidden, gate_up_.at());
  }
  GemmProblem Gated(int i) const {
    GemmProblem problem = GateUp(i);
    problem.silu_mul = true;
    problem.out = hidden_.at();
    problem.out_stride = kWidth;
    return problem;
  }
  GemmProblem Down(int i) const {
    const int64_t at = Layer(i) + int64_t{kHidden} * (kQkv + kHidden + 2 * int64_t{kWidth});
    GemmProblem problem = Make(hidden_, at, kHidden, kWidth, residual_.at());
    problem.out_dtype = DType::kF32;
    problem.accumulate = true;
    return problem;
  }
  GemmProblem Head(int i) const {
    GemmProblem problem =
        Make(normal_, int64_t{i} * kVocabulary * kHidden, kVocabulary, kHidden, logits_.at());
    problem.out_dtype = DType::kF32;
    return problem;
  }

  Tensor Rows(const DeviceMemory& memory, int32_t cols, DType dtype = DType::kBF16) const {
    Tensor tensor;
    tensor.data = memory.at();
    tensor.dtype = dtype;
    tensor.rows = rows_;
    tensor.cols = tensor.stride = cols;
    return tensor;
  }

  void TimeShape(const std::string& name,
                 const std::function<GemmProblem(int)>& problem,
                 int count) {
    const GemmProblem first = problem(0);
    const double bytes = static_cast<double>(number_bytes()) * first.n * first.k;
    const auto time = [&](const std::string& how, const std::function<void(int)>& launch) {
      const double all = TimeGraph(stream_, kRepeats, [&] {
        for (int i = 0; i < count; ++i) launch(i);
      });
      Print(name, how, rows_, all / count, bytes);
    };
    if (theirs_) {
      Check(gemm_->Prepare(Theirs(first), stream_));
      time("cublaslt", [&](int i) { Check(gemm_->Launch(Theirs(problem(i)), stream_)); });
    }
    if (!SkinnyGemmSupports(first)) return;
    std::vector<SkinnyPlan> timed;
    std::vector<std::pair<std::string, SkinnyLimits>> variants = Variants();
    for (const int32_t cluster : {1, 2, 4}) {
      for (const int32_t stage : {8 << 10, 16 << 10, 32 << 10}) {
        for (const int32_t matrices : {1, 2, 4, 8}) {
          SkinnyLimits limits = limits_;
          limits.cluster = cluster;
          limits.stage_bytes = stage;
          limits.matrices = matrices;
          variants.emplace_back("grid", limits);
        }
      }
    }
    for (const auto& [what, limits] : variants) {
      const SkinnyPlan plan = PlanSkinnyGemm(first, limits);
      if (std::ranges::find(timed, plan) != timed.end()) continue;
      timed.push_back(plan);
      time(fmt::format(
               "ours, {}: clusters of {}, {} × {} outputs, {} teams, {} stages of {} × {} KB",
               what,
               plan.cluster,
               plan.tiles,
               plan.tile_outputs,
               plan.warp_groups,
               plan.stages,
               plan.spans,
               plan.stage_bytes / plan.spans >> 10),
           [&](int i) { Check(LaunchSkinnyGemm(problem(i), plan, stream_)); });
    }
  }

  // Times the gated GEMM: gate, up and silu · up in one kernel.
  void TimeGated() const {
    const GemmProblem first = Gated(0);
    if (!GatedGemmSupports(first)) return;
    const auto time = [&](const std::string& how, const GatedPlan& plan) {
      const double all = TimeGraph(stream_, kRepeats, [&] {
        for (int i = 0; i < kLayers; ++i) Check(LaunchGatedGemm(Gated(i), plan, stream_));
      });
      Print("gated",
            how,
            rows_,
            all / kLayers,
            static_cast<double>(number_bytes()) * first.n * first.k);
    };
    const GatedLimits limits = FindGatedLimits(sm_count_);
    time("as it is", PlanGatedGemm(first, limits));
    for (const int32_t columns : {64, 96, 112, 128, 192, 224, 256}) {
      const auto with = [&](const char* how, GatedMulticast multicast) {
        GatedLimits changed = limits;
        changed.columns = columns;
        changed.multicast = multicast;
        const GatedPlan plan = PlanGatedGemm(first, changed);
        if (plan.columns == columns) time(fmt::format("{} columns, {}", columns, how), plan);
      };
      with("alone", GatedMulticast::kNone);
      with("x in pairs", GatedMulticast::kX);
      with("weights in pairs", GatedMulticast::kWeights);
    }
  }

  // The device's limits, and variants that differ from them in one field each.
  std::vector<std::pair<std::string, SkinnyLimits>> Variants() const {
    std::vector<std::pair<std::string, SkinnyLimits>> variants = {{"as it is", limits_}};
    const auto add = [&](const std::string& what, int32_t SkinnyLimits::*field, int32_t value) {
      SkinnyLimits limits = limits_;
      limits.*field = value;
      variants.emplace_back(fmt::format("{} {}", what, value), limits);
    };
    for (const int32_t v : {8 << 10, 16 << 10, 32 << 10})
      add("stage", &SkinnyLimits::stage_bytes, v);
    for (const int32_t v : {1, 2, 4, 8}) add("matrices", &SkinnyLimits::matrices, v);
    for (const int32_t v : {1, 2, 4}) add("clusters of", &SkinnyLimits::cluster, v);
    for (const int32_t v : {32, 64, 128}) add("tile", &SkinnyLimits::tile_rows, v);
    for (const int32_t v : {226 << 10, 160 << 10, 110 << 10})
      add("shared", &SkinnyLimits::shared_bytes, v);
    return variants;
  }

  void Ours(const GemmProblem& problem) {
    Check(LaunchSkinnyGemm(problem, PlanSkinnyGemm(problem, limits_), stream_));
  }
  void RunTheirs(const GemmProblem& problem) { Check(gemm_->Launch(Theirs(problem), stream_)); }
  void Norm() {
    NormLaunch norm;
    norm.residual = Rows(residual_, kHidden, DType::kF32);
    norm.weight = norm_.at<float>();
    norm.epsilon = kEpsilon;
    norm.out = Rows(normal_, kHidden);
    if (fp8_) norm.fp8_out = Quantized(normal_, kHidden);
    Check(LaunchNorm(norm, stream_));
  }
  void SiluMul() {
    const Tensor both = Rows(gate_up_, 2 * kWidth);
    if (fp8_) {
      const float* ones = norm_.at<float>();
      Check(LaunchSiluMulQuantize(both, {ones, ones}, Quantized(hidden_, kWidth), stream_));
    } else {
      Check(LaunchSiluMul(both, Rows(hidden_, kWidth), stream_));
    }
  }
  Fp8Rows Quantized(const DeviceMemory& memory, int32_t cols) const {
    return Fp8Rows::At(memory.at(), rows_, cols);
  }

  // Times norm, gate and up, silu · up and down, with gate and up by cuBLASLt and by the gated
  // GEMM.
  void TimeMlps() {
    const GemmProblem gated = Gated(0);
    if (!theirs_ || !GatedGemmSupports(gated)) return;
    const double bytes = 3.0 * static_cast<double>(number_bytes()) * kWidth * kHidden;
    const auto time = [&](const std::string& how, const std::function<void(int)>& gate_up) {
      const double all = TimeGraph(stream_, kRepeats, [&] {
        for (int i = 0; i < kLayers; ++i) {
          Norm();
          gate_up(i);
          RunTheirs(Down(i));
        }
      });
      Print("mlp", how, rows_, all / kLayers, bytes);
    };
    const GatedPlan plan = PlanGatedGemm(gated, FindGatedLimits(sm_count_));
    for (int turn = 0; turn < 2; ++turn) {
      time("cublaslt", [&](int i) {
        RunTheirs(GateUp(i));
        SiluMul();
      });
      time("gated", [&](int i) {
        GemmProblem problem = Gated(i);
        if (fp8_) problem.out = gate_up_.at();
        Check(LaunchGatedGemm(problem, plan, stream_));
        if (!fp8_) return;
        Check(LaunchQuantize(Rows(gate_up_, kWidth), Quantized(hidden_, kWidth), stream_));
      });
    }
  }

  // Times layers without attention.
  void TimeLayers() {
    const auto bytes = static_cast<double>(number_bytes() * Layer(1));
    const auto time = [&](const std::string& how, const std::function<void(int)>& layer) {
      const double all = TimeGraph(stream_, kRepeats, [&] {
        for (int i = 0; i < kLayers; ++i) layer(i);
      });
      Print("layer", how, rows_, all / kLayers, bytes);
    };
    if (theirs_) {
      time("norm", [&](int) { Norm(); });
      time("silu", [&](int) { SiluMul(); });
      time("cublaslt, products alone", [&](int i) {
        RunTheirs(Qkv(i));
        RunTheirs(Out(i));
        RunTheirs(GateUp(i));
        RunTheirs(Down(i));
      });
      time("cublaslt, with norm and silu kernels", [&](int i) {
        Norm();
        RunTheirs(Qkv(i));
        RunTheirs(Out(i));
        Norm();
        RunTheirs(GateUp(i));
        SiluMul();
        RunTheirs(Down(i));
      });
    }
    if (!SkinnyGemmSupports(Qkv(0))) return;
    for (const auto& [what, limits] : Variants()) {
      limits_ = limits;
      time("ours, products alone, " + what, [&](int i) {
        Ours(Qkv(i));
        Ours(Out(i));
        Ours(GateUp(i));
        Ours(Down(i));
      });
      time("ours, norm kernels, silu fused, " + what, [&](int i) {
        Norm();
        Ours(Qkv(i));
        Ours(Out(i));
        Norm();
        Ours(Gated(i));
        Ours(Down(i));
      });
      limits_ = FindSkinnyLimits(sm_count_);
    }
  }

  int sm_count_ = 0;
  int32_t rows_ = 0;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Gemm> gemm_;
  SkinnyLimits limits_;
  const bool theirs_;
  const bool fp8_;
  DeviceMemory weights_;
  DeviceMemory residual_;
  DeviceMemory normal_;
  DeviceMemory attended_;
  DeviceMemory qkv_;
  DeviceMemory gate_up_;
  DeviceMemory hidden_;
  DeviceMemory logits_;
  DeviceMemory norm_;
};

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const bool named = how == "ours" || how == "fp8" || how == "profile";
  baton::cuda::Bench bench(!named || how == "fp8", how == "fp8");
  for (int i = named ? 2 : 1; i < argc; ++i) {
    const int32_t rows = std::min(std::atoi(argv[i]), 256);
    if (how == "profile") {
      bench.Profile(rows);
    } else {
      bench.Run(rows);
    }
  }
  if (argc > 1) return 0;
  for (const int32_t rows : {2, 4, 8, 16, 32, 64, 128}) bench.Run(rows);
  return 0;
}

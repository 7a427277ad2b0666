#include <cuda_runtime_api.h>

#include <cstdio>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/gemm/few_outputs_gemm.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/sequential_gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/trial_numbers.h"
#include "kernels/cuda/rows/row_kernels.h"
#include "tests/gpu/graph_timer.h"

// Times the kernels of deterministic mode for GEMMs with up to 256 rows, in the shapes that one,
// two and four tensor ranks have of Llama-3.1-8B. A measurement is a CUDA graph of 16 GEMMs with
// weights of their own, each behind a small kernel. Prints one JSON line for each measurement.
namespace baton::cuda {
namespace {

using testing::Check;

constexpr int kLayers = 16;
constexpr int kRepeats = 9;
constexpr int32_t kMaxRows = 256;
constexpr int64_t kMaxOutputs = 14336;
constexpr int64_t kMaxInputs = 14336;
constexpr int64_t kMaxWeights = 4096 * kMaxInputs;

class Bench final {
 public:
  Bench() {
    auto device = ReadDeviceProperties();
    Check(device.status());
    device_ = *device;
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Fill(weights_, kLayers * kMaxWeights, 1);
    Fill(x_, kMaxRows * kMaxInputs, 2);
    Fill(out_, kMaxRows * kMaxOutputs, 3);
    Fill(small_, int64_t{1} << 10, 4);
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void Run(int32_t n, int32_t k, int32_t rows) {
    GemmProblem problem;
    problem.x = x_.at();
    problem.weight = weights_.at();
    problem.out = out_.at();
    problem.rows = rows;
    problem.n = n;
    problem.k = k;
    problem.x_stride = k;
    problem.out_stride = n;
    if (rows == 1) {
      Time("GEMV, in another order", problem, [this](const GemmProblem& one) {
        return LaunchGemv(one, device_.sm_count, stream_);
      });
    }
    if (rows <= kSkinnyMaxRows) {
      SkinnyLimits limits = FindSkinnyLimits(device_.sm_count);
      limits.cluster = limits.matrices = 1;
      const SkinnyPlan plan = PlanSkinnyGemm(problem, limits);
      Time("skinny", problem, [this, plan](const GemmProblem& one) {
        return LaunchSkinnyGemm(one, plan, stream_);
      });
    }
    if (const auto plan = PlanFewOutputsGemm(problem, device_.sm_count)) {
      Time("few outputs", problem, [this, plan](const GemmProblem& one) {
        return LaunchFewOutputsGemm(one, *plan, stream_);
      });
    }
    Time("chosen", problem, [this](const GemmProblem& one) {
      return LaunchSequentialGemm(one, device_, stream_);
    });
  }

 private:
  void Fill(DeviceMemory& memory, int64_t count, uint32_t seed) {
    Check(memory.Reserve(static_cast<size_t>(count) * 2));
    Check(LaunchFillNumbers(memory.at<__nv_bfloat16>(), count, seed, stream_));
  }

  void Time(std::string_view kernel,
            const GemmProblem& problem,
            const std::function<cudaError_t(const GemmProblem&)>& launch) {
    const Tensor from = {small_.at(), DType::kF32, 1, 64, 64};
    const Tensor to = {small_.at() + 1024, DType::kBF16, 1, 64, 64};
    const double microseconds = testing::TimeGraph(stream_, kRepeats, [&] {
      for (int layer = 0; layer < kLayers; ++layer) {
        Check(LaunchRound(from, to, stream_));
        GemmProblem one = problem;
        one.weight = weights_.at() + static_cast<size_t>(layer) * WeightBytes(problem);
        Check(launch(one));
      }
    });
    fmt::print("{{\"n\": {}, \"k\": {}, \"rows\": {}, \"kernel\": \"{}\", \"us\": {:.2f}}}\n",
               problem.n,
               problem.k,
               problem.rows,
               kernel,
               microseconds / kLayers);
    std::fflush(stdout);
  }

  DeviceProperties device_;
  cudaStream_t stream_ = nullptr;
  DeviceMemory weights_;
  DeviceMemory x_;
  DeviceMemory out_;
  DeviceMemory small_;
};

}  // namespace
}  // namespace baton::cuda

int main() {
  baton::cuda::Bench bench;
  for (const auto& [n, k] : {std::pair{6144, 4096},
                             {4096, 4096},
                             {28672 / 2, 4096},
                             {4096, 14336},
                             {3072, 4096},
                             {2048, 4096},
                             {2048, 14336},
                             {1024, 4096},
                             {1024, 14336}}) {
    for (const int rows : {1, 8, 32, 64, 128, 192, 256}) bench.Run(n, k, rows);
  }
}

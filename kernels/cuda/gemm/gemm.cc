#include "kernels/cuda/gemm/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/algorithm_file.h"
#include "kernels/cuda/gemm/cublas_descriptors.h"
#include "kernels/cuda/gemm/cublas_status.h"
#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/packed_skinny.h"
#include "kernels/cuda/gemm/row_class.h"
#include "kernels/cuda/gemm/sequential_gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/packed/widen.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Copies of a small weight have this many times the bytes of the L2 cache.
constexpr int64_t kWeightsPerL2 = 3;
constexpr int kCandidates = 16;
// Consecutive runs in one timing: kRuns, but kLongRuns from kLongRows rows on, because the start of
// the process waits for all timings.
constexpr size_t kRuns = 8;
constexpr size_t kLongRuns = 2;
constexpr int32_t kLongRows = 320;
constexpr float kWithinBest = 1.2f;
constexpr size_t kMaxTimed = 4;
constexpr int kRounds = 3;

// Rounded up, so that copies of the weight one behind the other stay aligned.
size_t PaddedWeightBytes(const GemmProblem& problem) {
  return (WeightBytes(problem) + 255) / 256 * 256;
}

struct Timed {
  cublasLtMatmulAlgo_t algorithm;
  std::vector<float> times;

  float Median() const {
    std::vector<float> sorted = times;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

}  // namespace

class Gemm::Impl {
 public:
  Impl(const DeviceProperties& device, const GemmOptions& options)
      : device_(device),
        options_(options),
        choices_(device, options.deterministic),
        weights_bytes_(static_cast<size_t>(kWeightsPerL2 * device.l2_bytes)) {}
  ~Impl() {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
    for (const cudaEvent_t event : {start_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    cudaFree(workspace_);
    cudaFree(weights_);
  }

  Status Create() {
    BATON_CUBLAS_RETURN_IF_ERROR(cublasLtCreate(&handle_));
    BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(&workspace_, kWorkspaceBytes));
    BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(reinterpret_cast<void**>(&weights_), weights_bytes_));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&start_));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&end_));
    return options_.cache_folder.empty() ? OkStatus() : ReadCache();
  }

  KernelId KernelOf(const GemmProblem& problem) { return choices_.KernelOf(problem); }
  bool SupportsFused(const GemmProblem& problem) { return FusesOps(KernelOf(problem)); }
  bool AppliesScales(const GemmProblem& problem) { return choices_.CublasAppliesScales(problem); }
  bool Widens(const GemmProblem& problem) { return KernelOf(problem) == KernelId::kWidenedGemm; }
  bool deterministic() const { return options_.deterministic; }

  Status Prepare(const GemmProblem& problem, cudaStream_t stream) {
    if (problem.rows == 0 || SupportsFused(problem)) return OkStatus();
    if (KernelOf(problem) == KernelId::kSequentialGemm) return OkStatus();
    if (Widens(problem)) {
      for (const GemmProblem& part : WidenedParts(problem)) {
        BATON_RETURN_IF_ERROR(Prepare(part, stream));
      }
      return OkStatus();
    }
    const GemmKey key = KeyOf(problem);
    if (algorithms_.contains(key) || without_algorithm_.contains(key)) return OkStatus();
    if (cached_.contains(key)) TakeFromCache(problem, key, stream);
    if (algorithms_.contains(key)) return OkStatus();
    std::vector<cublasLtMatmulAlgo_t> candidates = Candidates(problem, key);
    if (options_.deterministic) {
      BATON_RETURN_IF_ERROR(KeepSequential(problem, key, stream, candidates));
    }
    if (candidates.empty() && options_.deterministic) {
      without_algorithm_.insert(key);
      return OkStatus();
    }
    if (candidates.empty()) {
      return InvalidArgument("cuBLASLt has no algorithm for {} rows by a weight of {}×{}",
                             key.rows,
                             problem.n,
                             problem.k);
    }
    BATON_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t best,
                           Choose(problem, key, candidates, stream));
    algorithms_.emplace(key, best);
    return OkStatus();
  }

  bool has_timed() const { return has_timed_; }

  Status WriteCache() const {
    if (cache_path_.empty() || !has_timed_ || lacked_memory_) return OkStatus();
    std::vector<ChosenAlgorithm> all;
    for (const auto* some : {&algorithms_, &cached_}) {
      for (const auto& [key, algorithm] : *some) all.push_back({key, algorithm});
    }
    return WriteAlgorithms(cache_path_, identity_, all);
  }

  cudaError_t Launch(const GemmProblem& problem, cudaStream_t stream) {
    if (problem.rows == 0) return cudaSuccess;
    const KernelId kernel = KernelOf(problem);
    if (kernel == KernelId::kGemv) return LaunchGemv(problem, device_.sm_count, stream);
    if (kernel == KernelId::kSkinnyGemm) {
      return LaunchSkinnyGemm(problem, device_.sm_count, stream);
    }
    if (kernel == KernelId::kPackedGemm) {
      return LaunchPackedGemm(problem, device_.sm_count, stream);
    }
    if (kernel == KernelId::kGatedGemm) return LaunchGatedGemm(problem, device_.sm_count, stream);
    if (kernel == KernelId::kSequentialGemm) return LaunchSequentialGemm(problem, device_, stream);
    if (kernel == KernelId::kWidenedGemm) return LaunchWidened(problem, stream);
    const auto found = algorithms_.find(KeyOf(problem));
    if (found == algorithms_.end()) {
      return options_.deterministic ? LaunchSequentialGemm(problem, device_, stream)
                                    : cudaErrorInvalidValue;
    }
    return Multiply(problem, found->second, stream) == CUBLAS_STATUS_SUCCESS ? cudaSuccess
                                                                             : cudaErrorUnknown;
  }

 private:
  // The GEMMs of bf16 that compute a GEMM of a packed weight, for some outputs each.
  static std::vector<GemmProblem> WidenedParts(const GemmProblem& problem) {
    std::vector<GemmProblem> parts;
    const int32_t most = WidenedOutputs(problem);
    for (int32_t first = 0; first < problem.n; first += most) {
      GemmProblem part = problem;
      part.weight = problem.widened;
      part.weight_dtype = DType::kBF16;
      part.weight_scales = nullptr;
      part.packed = {};
      part.widened = nullptr;
      part.n = std::min(most, problem.n - first);
      part.out = static_cast<std::byte*>(problem.out) +
                 static_cast<size_t>(first) * ShapeOf(problem.out_dtype).bytes;
      if (problem.bias != nullptr) part.bias = problem.bias + first;
      parts.push_back(part);
    }
    return parts;
  }

  cudaError_t LaunchWidened(const GemmProblem& problem, cudaStream_t stream) {
    const PackedWeights weights = {static_cast<const std::byte*>(problem.weight),
                                   problem.packed,
                                   problem.n,
                                   problem.k,
                                   problem.weight_scales};
    int64_t first = 0;
    for (const GemmProblem& part : WidenedParts(problem)) {
      auto* const widened = reinterpret_cast<__nv_bfloat16*>(problem.widened);
      cudaError_t error = LaunchWiden(weights, first, part.n, widened, stream);
      if (error == cudaSuccess) error = Launch(part, stream);
      if (error != cudaSuccess) return error;
      first += part.n;
    }
    return cudaSuccess;
  }

  GemmKey KeyOf(const GemmProblem& problem) const {
    return {.rows = RowClass(problem.rows),
            .n = problem.n,
            .k = problem.k,
            .x_stride = problem.x_stride,
            .out_stride = problem.out_stride,
            .dtype = problem.weight_dtype,
            .out_dtype = problem.out_dtype,
            .bias = problem.bias != nullptr,
            .accumulate = problem.accumulate,
            .scaled = problem.x_scales != nullptr,
            .alignment = {
                AlignmentOf(problem.weight), AlignmentOf(problem.x), AlignmentOf(problem.out)}};
  }

  // Without a file that can be used, all algorithms are chosen by timing, and the file is written.
  Status ReadCache() {
    int index = 0;
    int driver = 0;
    cudaDeviceProp properties;
    BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&index));
    BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, index));
    BATON_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver));
    // Our own kernels decide which algorithms keep the order of sums.
    identity_ = fmt::format("{}, {} SMs, driver {}, cuBLASLt {}{}{}",
                            properties.name,
                            device_.sm_count,
                            driver,
                            cublasLtGetVersion(),
                            options_.deterministic ? ", sums in order" : "",
                            MayRun(KernelFamily::kHopper, device_) ? "" : ", portable kernels");
    cache_path_ = AlgorithmPath(options_.cache_folder, identity_);
    const auto found = ReadAlgorithms(cache_path_, identity_);
    if (!found.ok()) return OkStatus();
    for (const ChosenAlgorithm& chosen : *found) cached_.emplace(chosen.key, chosen.algorithm);
    return OkStatus();
  }

  // Takes the cached algorithms of this GEMM for all row classes up to this one. Each runs once,
  // into memory of its own, which loads its kernel and shows that it runs here.
  void TakeFromCache(const GemmProblem& problem, const GemmKey& key, cudaStream_t stream) {
    DeviceMemory place;
    if (!place.Reserve(OutBytes(problem, problem.rows)).ok()) return;
    GemmProblem trial = problem;
    trial.out = place.at();
    absl::erase_if(cached_, [&](const auto& entry) {
      const auto& [cached, algorithm] = entry;
      GemmKey same = cached;
      same.rows = key.rows;
      if (!(same == key) || cached.rows > key.rows) return false;
      trial.rows = std::min(cached.rows, problem.rows);
      if (Multiply(trial, algorithm, stream) == CUBLAS_STATUS_SUCCESS) {
        algorithms_.emplace(cached, algorithm);
      }
      return true;
    });
  }

  cublasStatus_t Multiply(const GemmProblem& problem,
                          const cublasLtMatmulAlgo_t& algorithm,
                          cudaStream_t stream) {
    GemmDescriptors descriptors(problem, problem.rows);
    const float one = 1;
    const float keep = problem.accumulate ? 1.0f : 0.0f;
    return cublasLtMatmul(handle_,
                          descriptors.matmul(),
                          &one,
                          problem.weight,
                          descriptors.weight(),
                          problem.x,
                          descriptors.x(),
                          &keep,
                          problem.out,
                          descriptors.out(),
                          problem.out,
                          descriptors.out(),
                          &algorithm,
                          workspace_,
                          kWorkspaceBytes,
                          stream);
  }

  // The algorithms that cuBLASLt proposes for the row class, in its order of preference.
  std::vector<cublasLtMatmulAlgo_t> Candidates(const GemmProblem& problem, const GemmKey& key) {
    GemmDescriptors descriptors(problem, key.rows);
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulPreferenceInit(&preference);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
    // Split-K partial sums are reduced in float32. Deterministic GEMMs do not split k.
    const uint32_t scheme = options_.deterministic ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                   : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_,
                                                                 descriptors.matmul(),
                                                                 descriptors.weight(),
                                                                 descriptors.x(),
                                                                 descriptors.out(),
                                                                 descriptors.out(),
                                                                 &preference,
                                                                 kCandidates,
                                                                 found.data(),
                                                                 &count);
    if (status != CUBLAS_STATUS_SUCCESS) return {};
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) algorithms.push_back(found[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  // The mean time of `runs` consecutive runs, in milliseconds; the largest float when the algorithm
  // does not run. Weights must come from memory and not from the L2 cache, so the runs read the
  // copies of a small weight in turn.
  StatusOr<float> Time(const GemmProblem& problem,
                       const cublasLtMatmulAlgo_t& algorithm,
                       size_t runs,
                       cudaStream_t stream) {
    const size_t bytes = PaddedWeightBytes(problem);
    const size_t places = weights_bytes_ / bytes;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(start_, stream));
    for (size_t run = 0; run < runs && status == CUBLAS_STATUS_SUCCESS; ++run) {
      GemmProblem trial = problem;
      if (places > 0) trial.weight = weights_ + run % places * bytes;
      status = Multiply(trial, algorithm, stream);
    }
    BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(end_, stream));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end_));
    float time = std::numeric_limits<float>::max();
    if (status == CUBLAS_STATUS_SUCCESS) {
      BATON_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&time, start_, end_));
      time /= static_cast<float>(runs);
    }
    return time;
  }

  // Keeps the algorithms whose bits are those of the sequential GEMM: with the most and the fewest
  // rows of the class, because an algorithm may divide the work differently then, and with these
  // rows. Without memory for the comparison it keeps none.
  Status KeepSequential(const GemmProblem& problem,
                        const GemmKey& key,
                        cudaStream_t stream,
                        std::vector<cublasLtMatmulAlgo_t>& algorithms) {
    if (algorithms.empty()) return OkStatus();
    GemmProblem most = problem;
    most.rows = key.rows;
    auto created = SequentialBits::Create(most, device_, stream);
    if (created.status().code() == StatusCode::kResourceExhausted) {
      lacked_memory_ = true;
      algorithms.clear();
      return OkStatus();
    }
    BATON_ASSIGN_OR_RETURN(const auto bits, std::move(created));
    std::vector<cublasLtMatmulAlgo_t> kept;
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      const auto multiply = [&](const GemmProblem& trial) {
        return Multiply(trial, algorithm, stream) == CUBLAS_STATUS_SUCCESS;
      };
      bool matches = true;
      for (const int32_t rows : {key.rows, FirstOfClass(key.rows), problem.rows}) {
        if (!matches) break;
        BATON_ASSIGN_OR_RETURN(matches, bits->Match(rows, multiply));
      }
      if (matches) kept.push_back(algorithm);
    }
    algorithms = std::move(kept);
    return OkStatus();
  }

  // The fastest of the candidates. Those within kWithinBest of the best are timed
  // again, in turn, so that a change of clocks or power does not favour one of them. The lowest
  // median wins.
  StatusOr<cublasLtMatmulAlgo_t> Choose(const GemmProblem& problem,
                                        const GemmKey& key,
                                        const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                        cudaStream_t stream) {
    const bool is_only = candidates.size() == 1;
    // Trials write to memory of their own, because the step may still need the contents of
    // problem.out: a residual, or the input of an earlier op. Without such memory, the first
    // candidate is used untimed.
    DeviceMemory place;
    const bool has_place = place.Reserve(OutBytes(problem, problem.rows)).ok();
    GemmProblem trial = problem;
    trial.out = place.at();
    if (is_only && has_place) (void)Multiply(trial, candidates.front(), stream);  // loads its code
    lacked_memory_ = lacked_memory_ || (!is_only && !has_place);
    if (is_only || !has_place) return candidates.front();
    has_timed_ = true;
    const size_t size = WeightBytes(problem);
    const size_t bytes = PaddedWeightBytes(problem);
    for (size_t at = 0; at + bytes <= weights_bytes_; at += bytes) {
      BATON_CUDA_RETURN_IF_ERROR(
          cudaMemcpyAsync(weights_ + at, problem.weight, size, cudaMemcpyDeviceToDevice, stream));
    }
    std::vector<Timed> timed;
    const bool is_long = problem.rows >= kLongRows;
    for (const cublasLtMatmulAlgo_t& candidate : candidates) {
      // Not timed: the first run of a kernel waits until its code has been loaded.
      (void)Multiply(trial, candidate, stream);
      BATON_ASSIGN_OR_RETURN(const float time, Time(trial, candidate, is_long ? 1 : kRuns, stream));
      if (time < std::numeric_limits<float>::max()) timed.push_back({candidate, {time}});
    }
    if (timed.empty()) {
      return InvalidArgument("every algorithm of cuBLASLt fails for {} rows by a weight of {}×{}",
                             key.rows,
                             problem.n,
                             problem.k);
    }
    std::ranges::sort(timed, {}, &Timed::Median);
    const float enough = kWithinBest * timed.front().Median();
    while (timed.size() > kMaxTimed || timed.back().Median() > enough) timed.pop_back();
    for (int round = 0; round < kRounds && timed.size() > 1; ++round) {
      for (Timed& one : timed) {
        BATON_ASSIGN_OR_RETURN(const float time,
                               Time(trial, one.algorithm, is_long ? kLongRuns : kRuns, stream));
        one.times.push_back(time);
      }
    }
    return std::ranges::min_element(timed, {}, &Timed::Median)->algorithm;
  }

  const DeviceProperties device_;
  const GemmOptions options_;
  GemmChoices choices_;
  const size_t weights_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::byte* weights_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
  absl::flat_hash_map<GemmKey, cublasLtMatmulAlgo_t> algorithms_;
  absl::flat_hash_set<GemmKey> without_algorithm_;  // none keeps the order of sums
  // The cache of algorithms: its file, what the file is valid for, and those of its entries that
  // have not been used.
  std::string cache_path_;
  std::string identity_;
  absl::flat_hash_map<GemmKey, cublasLtMatmulAlgo_t> cached_;
  bool has_timed_ = false;
  bool lacked_memory_ = false;  // some algorithm was chosen without timing
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;

StatusOr<std::unique_ptr<Gemm>> Gemm::Create(const DeviceProperties& device,
                                             const GemmOptions& options) {
  auto impl = std::make_unique<Impl>(device, options);
  BATON_RETURN_IF_ERROR(impl->Create());
  return std::unique_ptr<Gemm>(new Gemm(std::move(impl)));
}

std::vector<int32_t> Gemm::RowClasses(int32_t most) {
  std::vector<int32_t> classes;
  for (int32_t rows = 1; rows <= most; rows = classes.back() + 1) classes.push_back(RowClass(rows));
  return classes;
}

Status Gemm::Prepare(const GemmProblem& problem, cudaStream_t stream) {
  return impl_->Prepare(problem, stream);
}

bool Gemm::SupportsFused(const GemmProblem& problem) const {
  return impl_->SupportsFused(problem);
}

bool Gemm::AppliesScales(const GemmProblem& problem) const {
  return impl_->AppliesScales(problem);
}

bool Gemm::Widens(const GemmProblem& problem) const {
  return impl_->Widens(problem);
}

bool Gemm::has_timed() const {
  return impl_->has_timed();
}

Status Gemm::WriteCache() const {
  return impl_->WriteCache();
}

bool Gemm::deterministic() const {
  return impl_->deterministic();
}

cudaError_t Gemm::Launch(const GemmProblem& problem, cudaStream_t stream) {
  return impl_->Launch(problem, stream);
}

}  // namespace baton::cuda

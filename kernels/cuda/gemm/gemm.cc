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
#include <fmt/format.h>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/algorithm_file.h"
#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Memory for copies of a small weight, much larger than the L2 cache.
constexpr size_t kWeightsBytes = size_t{160} << 20;
constexpr int kCandidates = 16;
// Consecutive runs in one timing: kRuns, but kLongRuns from kLongRows rows on, because the start of
// the process waits for all timings.
constexpr size_t kRuns = 8;
constexpr size_t kLongRuns = 2;
constexpr int32_t kLongRows = 320;
constexpr float kWithinBest = 1.2f;
constexpr size_t kMaxTimed = 4;
constexpr int kRounds = 3;
constexpr int32_t kDeterministicRows = 64;
// The most rows of the skinny GEMM. With more rows it reads x too often. For a large k in bf16 it
// stays faster up to more rows, because it divides k among thread blocks better than cuBLASLt does.
constexpr int32_t kSkinnyRows = 32;
constexpr int32_t kSkinnyRowsOfLargeK = 64;

Status ToStatus(cublasStatus_t error, std::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return MakeStatus(
      StatusCode::kInternal, "cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(error));
}

#define BATON_CUBLAS_RETURN_IF_ERROR(expression) \
  BATON_RETURN_IF_ERROR(ToStatus(expression, #expression))

size_t WeightBytes(const GemmProblem& problem) {
  return static_cast<size_t>(problem.n) *
         RowBytes(problem.weight_dtype, static_cast<size_t>(problem.k));
}

// Rounded up, so that copies of the weight one behind the other stay aligned.
size_t PaddedWeightBytes(const GemmProblem& problem) {
  return (WeightBytes(problem) + 255) / 256 * 256;
}

size_t OutBytes(const GemmProblem& problem) {
  return static_cast<size_t>(problem.rows * problem.out_stride) * ShapeOf(problem.out_dtype).bytes;
}

// The largest power of two, up to 256, that divides the address.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & -address);
}

// The row class of `rows`, as its largest number of rows. Up to 8 rows, each number is a class of
// its own; up to 256, each multiple of 16; above, there are four classes in each doubling.
int32_t RowClass(int32_t rows) {
  if (rows <= 8) return rows;
  int32_t step = 16;
  while (rows > 256 && rows > 8 * step) step *= 2;
  return RoundUp(rows, step);
}

struct Timed {
  cublasLtMatmulAlgo_t algorithm;
  std::vector<float> times;

  float Median() const {
    std::vector<float> sorted = times;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    return *middle;
  }
};

// The cuBLASLt descriptors of one GEMM. In cuBLAS's column-major terms outᵀ = weight · xᵀ, with the
// weight transposed.
class Descriptors final {
 public:
  explicit Descriptors(const GemmProblem& problem, int32_t rows) {
    const cudaDataType_t out = problem.out_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtMatmulDescInit(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (problem.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t bias = CUDA_R_16BF;
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
    }
    const bool fp8 = problem.weight_dtype == DType::kFp8;
    if (fp8) {
      // Fast accumulation: the tensor cores add with fewer bits than float32.
      const int8_t fast = 1;
      Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    }
    const auto n = static_cast<uint64_t>(problem.n);
    const auto k = static_cast<uint64_t>(problem.k);
    const auto m = static_cast<uint64_t>(rows);
    const cudaDataType_t in = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    cublasLtMatrixLayoutInit(&weight_, in, k, n, problem.k);
    cublasLtMatrixLayoutInit(&x_, in, k, m, problem.x_stride);
    cublasLtMatrixLayoutInit(&out_, out, n, m, problem.out_stride);
  }

  cublasLtMatmulDesc_t matmul() { return &matmul_; }
  cublasLtMatrixLayout_t weight() { return &weight_; }
  cublasLtMatrixLayout_t x() { return &x_; }
  cublasLtMatrixLayout_t out() { return &out_; }

 private:
  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): a pointer is an attribute, too
    cublasLtMatmulDescSetAttribute(&matmul_, attribute, &value, sizeof(value));
  }

  cublasLtMatmulDescOpaque_t matmul_;
  cublasLtMatrixLayoutOpaque_t weight_;
  cublasLtMatrixLayoutOpaque_t x_;
  cublasLtMatrixLayoutOpaque_t out_;
};

}  // namespace

class Gemm::Impl {
 public:
  explicit Impl(const GemmOptions& options)
      : options_(options), own_kernels_(!options.deterministic && options.architecture == 90) {}
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
    BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(reinterpret_cast<void**>(&weights_), kWeightsBytes));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&start_));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&end_));
    return options_.cache_folder.empty() ? OkStatus() : ReadCache();
  }

  bool UsesSkinny(const GemmProblem& problem) const {
    const bool large_k = problem.k >= 2 * problem.n && problem.weight_dtype == DType::kBF16;
    return own_kernels_ && problem.rows <= (large_k ? kSkinnyRowsOfLargeK : kSkinnyRows) &&
           SkinnyGemmSupports(problem);
  }
  bool UsesGated(const GemmProblem& problem) const {
    return own_kernels_ && problem.rows > kSkinnyRows && GatedGemmSupports(problem);
  }
  bool SupportsFused(const GemmProblem& problem) const {
    return (own_kernels_ && GemvSupports(problem)) || UsesSkinny(problem) || UsesGated(problem);
  }
  bool deterministic() const { return options_.deterministic; }

  Status Prepare(const GemmProblem& problem, cudaStream_t stream) {
    if (problem.rows == 0 || SupportsFused(problem)) return OkStatus();
    const GemmKey key = KeyOf(problem);
    if (algorithms_.contains(key)) return OkStatus();
    if (cached_.contains(key)) TakeFromCache(problem, key, stream);
    if (algorithms_.contains(key)) return OkStatus();
    BATON_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t best, Choose(problem, key, stream));
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
    if (own_kernels_ && GemvSupports(problem))
      return LaunchGemv(problem, options_.sm_count, stream);
    if (UsesSkinny(problem)) return LaunchSkinnyGemm(problem, options_.sm_count, stream);
    if (UsesGated(problem)) return LaunchGatedGemm(problem, options_.sm_count, stream);
    const auto found = algorithms_.find(KeyOf(problem));
    if (found == algorithms_.end()) return cudaErrorInvalidValue;
    return Multiply(problem, found->second, stream) == CUBLAS_STATUS_SUCCESS ? cudaSuccess
                                                                             : cudaErrorUnknown;
  }

 private:
  GemmKey KeyOf(const GemmProblem& problem) const {
    return {.rows = options_.deterministic ? kDeterministicRows : RowClass(problem.rows),
            .n = problem.n,
            .k = problem.k,
            .x_stride = problem.x_stride,
            .out_stride = problem.out_stride,
            .dtype = problem.weight_dtype,
            .out_dtype = problem.out_dtype,
            .bias = problem.bias != nullptr,
            .accumulate = problem.accumulate,
            .alignment = {
                AlignmentOf(problem.weight), AlignmentOf(problem.x), AlignmentOf(problem.out)}};
  }

  // Without a file that can be used, all algorithms are chosen by timing, and the file is written.
  Status ReadCache() {
    int device = 0;
    int driver = 0;
    cudaDeviceProp properties;
    BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
    BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
    BATON_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver));
    identity_ = fmt::format("{}, {} SMs, driver {}, cuBLASLt {}",
                            properties.name,
                            options_.sm_count,
                            driver,
                            cublasLtGetVersion());
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
    if (!place.Reserve(OutBytes(problem)).ok()) return;
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
    Descriptors descriptors(problem, problem.rows);
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
  StatusOr<std::vector<cublasLtMatmulAlgo_t>> Candidates(const GemmProblem& problem,
                                                         const GemmKey& key) {
    Descriptors descriptors(problem, key.rows);
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
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
      return InvalidArgument("cuBLASLt has no algorithm for {} rows by a weight of {}×{}",
                             key.rows,
                             problem.n,
                             problem.k);
    }
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
    const size_t places = kWeightsBytes / bytes;
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

  // The fastest algorithm that cuBLASLt proposes. Those within kWithinBest of the best are timed
  // again, in turn, so that a change of clocks or power does not favour one of them. The lowest
  // median wins.
  StatusOr<cublasLtMatmulAlgo_t> Choose(const GemmProblem& problem,
                                        const GemmKey& key,
                                        cudaStream_t stream) {
    BATON_ASSIGN_OR_RETURN(const auto candidates, Candidates(problem, key));
    if (options_.deterministic || candidates.size() == 1) return candidates.front();
    // Trials write to memory of their own, because the step may still need the contents of
    // problem.out: a residual, or the input of an earlier op. Without such memory, the first
    // candidate is used untimed.
    DeviceMemory place;
    if (!place.Reserve(OutBytes(problem)).ok()) {
      lacked_memory_ = true;
      return candidates.front();
    }
    has_timed_ = true;
    GemmProblem trial = problem;
    trial.out = place.at();
    const size_t size = WeightBytes(problem);
    const size_t bytes = PaddedWeightBytes(problem);
    for (size_t at = 0; at + bytes <= kWeightsBytes; at += bytes) {
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

  const GemmOptions options_;
  const bool own_kernels_;  // whether our own kernels, which need sm_90, may be used
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::byte* weights_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
  absl::flat_hash_map<GemmKey, cublasLtMatmulAlgo_t> algorithms_;
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

StatusOr<std::unique_ptr<Gemm>> Gemm::Create(const GemmOptions& options) {
  auto impl = std::make_unique<Impl>(options);
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

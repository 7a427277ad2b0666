#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/device/scratch_memory.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

// The most rows that are computed at once, which bounds the scratch memory.
constexpr int64_t kMaxRows = 8192;

// Up to this number of rows, scores are computed without tensor cores, which has less latency.
constexpr int64_t kFewScoreRows = 4;

// Sets the pointers of `scratch` for `rows` rows in memory from `base` on, and returns its size.
size_t Place(const PreparedExperts& experts,
             int64_t rows,
             std::byte* base,
             ExpertScratch& scratch) {
  Layout layout;
  const auto take = [&](auto*& to, int64_t count) {
    using T = std::remove_reference_t<decltype(*to)>;
    to = reinterpret_cast<T*>(base + layout.Take(static_cast<size_t>(count) * sizeof(T)));
  };
  const int64_t pairs = rows * experts.per_token;
  take(scratch.scores, rows * experts.experts);
  take(scratch.pair_experts, pairs);
  take(scratch.pair_weights, pairs);
  take(scratch.pair_ranks, pairs);
  take(scratch.pair_slots, pairs);
  take(scratch.slot_rows, pairs);
  take(scratch.counts, int64_t{experts.experts} * kCountStride);
  take(scratch.next_items, 2);
  take(scratch.tiles, experts.experts + pairs / 16 + 1);
  take(scratch.tile_count, 1);
  take(scratch.inner, pairs * experts.width);
  take(scratch.results, pairs * experts.hidden);
  return layout.size();
}

const __nv_bfloat16* DataOf(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix).data();
}

// Whether the wgmma kernels can compute the experts: TMA loads their inputs in whole spans.
bool FitsWgmma(const ExpertArgs& args) {
  static_assert(kSpanNumbers % kMixedRows == 0);
  return args.router->cols() % kSpanNumbers == 0 && args.down[0]->cols() % kSpanNumbers == 0;
}

// Sets one map of `maps` for each matrix, from the first one on.
Status MakeMaps(std::span<const std::unique_ptr<Matrix>> matrices, std::span<CUtensorMap> maps) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& matrix = *matrices[i];
    const int64_t row_bytes = matrix.cols() * 2;
    const MatrixView view{
        DataOf(matrix), static_cast<int32_t>(matrix.rows()), row_bytes, row_bytes};
    BATON_CUDA_RETURN_IF_ERROR(MakeMixedTensorMap(view, kWgmmaBoxRows, &maps[i]));
  }
  return OkStatus();
}

// The experts in `args` are those from `first` on of the router's.
Status CheckShapes(const ExpertArgs& args, int64_t first) {
  const int64_t experts = args.router->rows();
  if (args.gate_up.empty() || experts > kMaxExperts || args.experts_per_token < 1 ||
      args.experts_per_token > std::min<int64_t>(experts, kMaxExpertsPerToken)) {
    return InvalidArgument(
        "{} experts, {} per token; the device supports up to {} experts, 1 to {} of them per token",
        experts,
        args.experts_per_token,
        kMaxExperts,
        kMaxExpertsPerToken);
  }
  const int64_t hidden = args.router->cols();
  const int64_t width = args.down[0]->cols();
  const auto held = static_cast<int64_t>(args.gate_up.size());
  const bool whole = args.rank_ends.empty() ? held == experts : first + held <= experts;
  if (!whole || args.down.size() != args.gate_up.size() || hidden % 8 != 0 || width % 8 != 0) {
    return InvalidArgument(
        "{} experts of {}x{} from number {} on, with {} down matrices and a router of {} rows; the "
        "numbers must match, and the sizes be multiples of 8",
        held,
        width,
        hidden,
        first,
        args.down.size(),
        experts);
  }
  for (size_t e = 0; e < args.gate_up.size(); ++e) {
    const Matrix& gate_up = *args.gate_up[e];
    const Matrix& down = *args.down[e];
    for (const Matrix* matrix : {&gate_up, &down}) {
      if (static_cast<const CudaMatrix*>(matrix)->dtype() != DType::kBF16) {
        return InvalidArgument("expert {} is stored in FP8; experts must be stored in bf16", e);
      }
    }
    if (gate_up.rows() != 2 * width || gate_up.cols() != hidden || down.rows() != hidden ||
        down.cols() != width) {
      return InvalidArgument("expert {} has matrices {}x{} and {}x{}; they must be {}x{} and {}x{}",
                             e,
                             gate_up.rows(),
                             gate_up.cols(),
                             down.rows(),
                             down.cols(),
                             2 * width,
                             hidden,
                             hidden,
                             width);
    }
  }
  return OkStatus();
}

}  // namespace

class Experts::Impl {
 public:
  explicit Impl(const ExpertsOptions& options) : options_(options) {}
  StatusOr<PreparedExperts> Prepare(const ExpertArgs& args, int64_t rows, int32_t first);
  bool deterministic() const { return options_.deterministic; }

 private:
  using Identity = std::tuple<const void*, const void*, const void*>;
  struct Layer {
    PreparedExperts experts;
    DeviceMemory table;
    DeviceMemory maps;
  };

  Status Describe(const ExpertArgs& args, int32_t first, Layer& layer);
  Status DescribeForWgmma(const ExpertArgs& args, Layer& layer);

  ExpertsOptions options_;
  std::map<Identity, Layer> layers_;
  ScratchMemory scratch_;
};

StatusOr<PreparedExperts> Experts::Impl::Prepare(const ExpertArgs& args,
                                                 int64_t rows,
                                                 int32_t first) {
  const Identity identity{args.router, args.gate_up.data(), args.down.data()};
  auto found = layers_.find(identity);
  if (found == layers_.end()) {
    BATON_RETURN_IF_ERROR(CheckShapes(args, first));
    found = layers_.try_emplace(identity).first;
    if (const Status status = Describe(args, first, found->second); !status.ok()) {
      layers_.erase(found);
      return status;
    }
  }
  PreparedExperts experts = found->second.experts;
  experts.per_token = args.experts_per_token;
  experts.normalize = args.normalize;
  const auto part = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  ExpertScratch unused;
  const size_t bytes = Place(experts, std::min(part, kMaxRows), nullptr, unused);
  BATON_ASSIGN_OR_RETURN(experts.scratch, scratch_.Get(bytes));
  return experts;
}

// Uploads the addresses of the experts' matrices.
Status Experts::Impl::Describe(const ExpertArgs& args, int32_t first, Layer& layer) {
  const auto count = static_cast<size_t>(args.router->rows());
  // By the experts' numbers: gate and up of all, then down of all; null where another rank has
  // them.
  std::vector<const __nv_bfloat16*> table(2 * count);
  for (size_t i = 0; i < args.gate_up.size(); ++i) {
    const size_t expert = static_cast<size_t>(first) + i;
    table[expert] = DataOf(*args.gate_up[i]);
    table[count + expert] = DataOf(*args.down[i]);
  }
  const size_t bytes = std::span(table).size_bytes();
  BATON_RETURN_IF_ERROR(layer.table.Reserve(bytes));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(layer.table.at(), table.data(), bytes, cudaMemcpyHostToDevice));
  PreparedExperts& experts = layer.experts;
  experts.router = DataOf(*args.router);
  experts.gate_up = layer.table.at<const __nv_bfloat16*>();
  experts.down = experts.gate_up + count;
  experts.experts = static_cast<int32_t>(count);
  experts.first = first;
  experts.end = first + static_cast<int32_t>(args.gate_up.size());
  experts.hidden = static_cast<int32_t>(args.router->cols());
  experts.width = static_cast<int32_t>(args.down[0]->cols());
  const bool wgmma = options_.architecture == 90 && !options_.deterministic && FitsWgmma(args);
  return wgmma ? DescribeForWgmma(args, layer) : OkStatus();
}

// Uploads the tensor maps of the experts' matrices, after Describe has set the numbers.
Status Experts::Impl::DescribeForWgmma(const ExpertArgs& args, Layer& layer) {
  PreparedExperts& experts = layer.experts;
  const auto count = static_cast<size_t>(experts.experts);
  const auto first = static_cast<size_t>(experts.first);
  // In the order of the addresses above. No kernel reads the maps of experts that are not held.
  std::vector<CUtensorMap> maps(2 * count);
  const std::span<CUtensorMap> all(maps);
  BATON_RETURN_IF_ERROR(MakeMaps(args.gate_up, all.subspan(first)));
  BATON_RETURN_IF_ERROR(MakeMaps(args.down, all.subspan(count + first)));
  const size_t bytes = std::span(maps).size_bytes();
  BATON_RETURN_IF_ERROR(layer.maps.Reserve(bytes));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(layer.maps.at(), maps.data(), bytes, cudaMemcpyHostToDevice));
  experts.gate_up_maps = layer.maps.at<const CUtensorMap>();
  experts.down_maps = experts.gate_up_maps + count;
  experts.wgmma_rows = options_.wgmma_rows;
  experts.sm_count = options_.sm_count;
  return OkStatus();
}

Experts::Experts(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Experts::~Experts() = default;

StatusOr<std::unique_ptr<Experts>> Experts::Create(const ExpertsOptions& options) {
  return std::unique_ptr<Experts>(new Experts(std::make_unique<Impl>(options)));
}

StatusOr<PreparedExperts> Experts::Prepare(const ExpertArgs& args, int64_t rows, int32_t first) {
  return impl_->Prepare(args, rows, first);
}

cudaError_t Experts::Launch(const Tensor& x,
                            const PreparedExperts& experts,
                            const Tensor& out,
                            cudaStream_t stream) {
  for (int64_t first = 0; first < x.rows; first += kMaxRows) {
    const int64_t rows = std::min(x.rows - first, kMaxRows);
    const Tensor part = x.Rows(first, rows);
    ExpertScratch scratch;
    Place(experts, rows, experts.scratch, scratch);
    const bool few = rows <= kFewScoreRows && !impl_->deterministic();
    cudaError_t error = few ? LaunchFewScores(part, experts, scratch, stream)
                            : LaunchScores(part, experts, scratch, stream);
    if (error == cudaSuccess) error = LaunchRouting(rows, experts, scratch, stream);
    const bool wgmma = UsesWgmma(experts, rows);
    if (error == cudaSuccess) {
      error = wgmma ? LaunchWgmmaGateUp(part, experts, scratch, stream)
                    : LaunchGateUp(part, experts, scratch, stream);
    }
    if (error == cudaSuccess) {
      error = wgmma ? LaunchWgmmaDown(rows, experts, scratch, stream)
                    : LaunchDown(rows, experts, scratch, stream);
    }
    if (error == cudaSuccess) {
      error = LaunchCombine(experts, scratch, out.Rows(first, rows), stream);
    }
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace baton::cuda

#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/table/kernel_table.h"

namespace baton::cuda {
namespace {

// The most rows that are computed at once, which bounds the scratch memory.
constexpr int64_t kMaxRows = 8192;

ExpertResults ResultsIn(const ExpertScratch& scratch, const PreparedExperts& experts) {
  return {.results = scratch.results,
          .slots = scratch.pair_slots,
          .experts = scratch.pair_experts,
          .weights = scratch.pair_weights,
          .per_token = experts.per_token,
          .layer_experts = experts.experts,
          .cols = experts.hidden};
}

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
  if (experts.routing.weighted_inputs) take(scratch.slot_weights, pairs);
  take(scratch.counts, int64_t{experts.experts} * kCountStride);
  take(scratch.next_items, 2);
  take(scratch.tiles, experts.experts + pairs / kLeastTileRows + 1);
  take(scratch.tile_count, 1);
  take(scratch.slot_count, 1);
  take(scratch.inner, pairs * experts.width);
  take(scratch.results, pairs * experts.hidden);
  const auto take_fp8 = [&](Fp8Rows& to, int64_t count, int64_t cols) {
    to = Fp8Rows::At(base + layout.Take(Fp8Rows::Bytes(count, cols)), count, cols);
  };
  const bool wgmma = experts.gate_up_maps != nullptr;
  if (wgmma && experts.gate_up_scales != nullptr) take_fp8(scratch.fp8_x, rows, experts.hidden);
  if (wgmma && experts.down_scales != nullptr) take_fp8(scratch.fp8_inner, pairs, experts.width);
  return layout.size();
}

const CudaMatrix& Cast(const std::unique_ptr<Matrix>& matrix) {
  return static_cast<const CudaMatrix&>(*matrix);
}

// The numbers of a matrix, and its scales if it is in FP8, or the factors of a packed one.
struct Numbers {
  const void* data = nullptr;
  const float* scales = nullptr;

  explicit Numbers(const CudaMatrix& matrix) : data(matrix.data()) {
    if (matrix.is_packed()) {
      scales = matrix.packed().factors;
      return;
    }
    if (matrix.dtype() != DType::kFp8) return;
    data = matrix.fp8().data;
    scales = matrix.fp8().scales;
  }
};

// Bytes of a row, without the scale of FP8.
int64_t BytesOfRow(const CudaMatrix& matrix) {
  return matrix.cols() * (matrix.dtype() == DType::kFp8 ? 1 : 2);
}

// Sets one map of `maps` for each matrix, from the first one on.
Status MakeMaps(std::span<const std::unique_ptr<Matrix>> matrices, std::span<CUtensorMap> maps) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    const CudaMatrix& matrix = Cast(matrices[i]);
    const int64_t row_bytes = BytesOfRow(matrix);
    const MatrixView view{
        Numbers(matrix).data, static_cast<int32_t>(matrix.rows()), row_bytes, row_bytes};
    BATON_CUDA_RETURN_IF_ERROR(MakeMixedTensorMap(view, kWgmmaBoxRows, &maps[i]));
  }
  return OkStatus();
}

// Kernels take the router in bf16, and the same type for a matrix of all experts.
Status CheckTypes(const ExpertArgs& args) {
  if (static_cast<const CudaMatrix*>(args.router)->dtype() != DType::kBF16) {
    return InvalidArgument("the router is stored in FP8; it must be stored in bf16");
  }
  for (const auto& matrices : {args.gate_up, args.down}) {
    const CudaMatrix& first = Cast(matrices[0]);
    for (size_t e = 1; e < matrices.size(); ++e) {
      const CudaMatrix& matrix = Cast(matrices[e]);
      if (matrix.dtype() != first.dtype() || !(matrix.packed().format == first.packed().format)) {
        return InvalidArgument(
            "a matrix of the first expert is stored in {}, that of expert {} in {}; all experts of "
            "a layer must be stored in the same type, with groups of the same form",
            Name(first.dtype()),
            e,
            Name(matrix.dtype()));
      }
    }
  }
  return OkStatus();
}

PreparedRouting RoutingOf(const ExpertArgs& args) {
  const RouterArgs& routing = args.routing;
  return {.score = routing.score,
          .scale = routing.scale,
          .weighted_inputs = routing.weighted_inputs,
          .least_sum = routing.least_sum,
          .bias = DataOf(args.router_bias),
          .selection_bias = DataOf(routing.selection_bias),
          .groups = routing.groups,
          .groups_per_token = routing.groups_per_token,
          .group_score = routing.group_score};
}

Status CheckGroups(const ExpertArgs& args) {
  const int64_t experts = args.router->rows();
  const int32_t groups = args.routing.groups;
  if (groups < 1 || groups > kMaxExpertGroups || experts % groups != 0 ||
      args.routing.groups_per_token < 1 || args.routing.groups_per_token > groups) {
    return InvalidArgument(
        "{} experts in {} groups, {} of them per token; the device supports up to {} equal groups",
        experts,
        groups,
        args.routing.groups_per_token,
        kMaxExpertGroups);
  }
  return OkStatus();
}

// Biases are there for all held experts, or for none.
Status CheckBiases(const ExpertArgs& args) {
  const auto differ = [&](std::span<const std::unique_ptr<Vector>> biases,
                          std::span<const std::unique_ptr<Matrix>> matrices) {
    if (biases.empty()) return false;
    if (biases.size() != matrices.size()) return true;
    for (size_t e = 0; e < biases.size(); ++e) {
      if (biases[e]->size() != matrices[e]->rows()) return true;
    }
    return false;
  };
  if (differ(args.gate_up_bias, args.gate_up) || differ(args.down_bias, args.down)) {
    return InvalidArgument(
        "{} biases of gate and up and {} of down for {} experts; there must be one for each row of "
        "each expert's matrices, or none",
        args.gate_up_bias.size(),
        args.down_bias.size(),
        args.gate_up.size());
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
  const int64_t rows = args.gate.ungated ? width : 2 * width;  // of gate and up
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
    if (gate_up.rows() != rows || gate_up.cols() != hidden || down.rows() != hidden ||
        down.cols() != width) {
      return InvalidArgument("expert {} has matrices {}x{} and {}x{}; they must be {}x{} and {}x{}",
                             e,
                             gate_up.rows(),
                             gate_up.cols(),
                             down.rows(),
                             down.cols(),
                             rows,
                             hidden,
                             hidden,
                             width);
    }
  }
  return OkStatus();
}

cudaError_t LaunchGemms(const Tensor& x,
                        const PreparedExperts& experts,
                        const ExpertScratch& scratch,
                        cudaStream_t stream) {
  if (UsesPackedWgmma(experts, x.rows)) {
    const cudaError_t first = LaunchPackedWgmmaGateUp(x, experts, scratch, stream);
    return first == cudaSuccess ? LaunchPackedWgmmaDown(x.rows, experts, scratch, stream) : first;
  }
  const cudaError_t error = experts.gate_up_format.is_packed()
                                ? LaunchPackedGateUp(x, experts, scratch, stream)
                                : LaunchGateUp(x, experts, scratch, stream);
  if (error != cudaSuccess) return error;
  return experts.down_format.is_packed() ? LaunchPackedDown(x.rows, experts, scratch, stream)
                                         : LaunchDown(x.rows, experts, scratch, stream);
}

// The same with wgmma, where FP8 weights take inputs in FP8.
cudaError_t LaunchWgmmaGemms(const Tensor& x,
                             const PreparedExperts& experts,
                             const ExpertScratch& scratch,
                             cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  if (experts.gate_up_scales != nullptr) error = LaunchQuantize(x, scratch.fp8_x, stream);
  if (error == cudaSuccess) error = LaunchWgmmaGateUp(x, experts, scratch, stream);
  if (error == cudaSuccess && experts.down_scales != nullptr) {
    error = LaunchQuantizeInner(x.rows, experts, scratch, stream);
  }
  return error == cudaSuccess ? LaunchWgmmaDown(x.rows, experts, scratch, stream) : error;
}

}  // namespace

class Experts::Impl {
 public:
  Impl(const DeviceProperties& device, const ExpertsOptions& options)
      : device_(device), options_(options) {}
  StatusOr<PreparedExperts> Prepare(const ExpertArgs& args, int32_t first);
  bool ScoresFew(int64_t rows) const {
    const KernelRule* const rule =
        Choose(ExpertScoresRequest(rows, options_.deterministic), device_);
    return rule != nullptr && rule->kernel == KernelId::kFewScores;
  }

 private:
  using Identity = std::tuple<const void*, const void*, const void*>;
  struct Layer {
    PreparedExperts experts;
    DeviceMemory table;
    DeviceMemory maps;
  };

  Status Describe(const ExpertArgs& args, int32_t first, Layer& layer);
  Status DescribeForWgmma(const ExpertArgs& args, Layer& layer);

  const DeviceProperties device_;
  const ExpertsOptions options_;
  std::map<Identity, Layer> layers_;
};

StatusOr<PreparedExperts> Experts::Impl::Prepare(const ExpertArgs& args, int32_t first) {
  const Identity identity{args.router, args.gate_up.data(), args.down.data()};
  auto found = layers_.find(identity);
  if (found == layers_.end()) {
    BATON_RETURN_IF_ERROR(CheckShapes(args, first));
    BATON_RETURN_IF_ERROR(CheckGroups(args));
    BATON_RETURN_IF_ERROR(CheckBiases(args));
    BATON_RETURN_IF_ERROR(CheckTypes(args));
    found = layers_.try_emplace(identity).first;
    if (const Status status = Describe(args, first, found->second); !status.ok()) {
      layers_.erase(found);
      return status;
    }
  }
  PreparedExperts experts = found->second.experts;
  experts.per_token = args.experts_per_token;
  experts.normalize = args.normalize;
  experts.routing = RoutingOf(args);
  experts.gate = args.gate;
  return experts;
}

// Uploads the addresses of the experts' matrices, scales and biases.
Status Experts::Impl::Describe(const ExpertArgs& args, int32_t first, Layer& layer) {
  const auto count = static_cast<size_t>(args.router->rows());
  // By the experts' numbers: gate and up of all, then down of all, then the scales and the biases
  // in the same order; null where another rank has them.
  std::vector<const void*> table(6 * count);
  for (size_t i = 0; i < args.gate_up.size(); ++i) {
    const size_t expert = static_cast<size_t>(first) + i;
    const Numbers gate_up(Cast(args.gate_up[i]));
    const Numbers down(Cast(args.down[i]));
    table[expert] = gate_up.data;
    table[count + expert] = down.data;
    table[2 * count + expert] = gate_up.scales;
    table[3 * count + expert] = down.scales;
    if (!args.gate_up_bias.empty()) table[4 * count + expert] = DataOf(args.gate_up_bias[i].get());
    if (!args.down_bias.empty()) table[5 * count + expert] = DataOf(args.down_bias[i].get());
  }
  BATON_RETURN_IF_ERROR(layer.table.Reserve(std::span(table).size_bytes()));
  BATON_RETURN_IF_ERROR(layer.table.Write(std::as_bytes(std::span(table))));
  PreparedExperts& experts = layer.experts;
  experts.router = static_cast<const CudaMatrix*>(args.router)->data();
  experts.gate_up = layer.table.at<const void*>();
  experts.down = experts.gate_up + count;
  const auto* scales = layer.table.at<const float*>() + 2 * count;
  if (Numbers(Cast(args.gate_up[0])).scales != nullptr) experts.gate_up_scales = scales;
  if (Numbers(Cast(args.down[0])).scales != nullptr) experts.down_scales = scales + count;
  experts.gate_up_format = Cast(args.gate_up[0]).packed().format;
  experts.down_format = Cast(args.down[0]).packed().format;
  if (!args.gate_up_bias.empty()) experts.gate_up_biases = scales + 2 * count;
  if (!args.down_bias.empty()) experts.down_biases = scales + 3 * count;
  experts.experts = static_cast<int32_t>(count);
  experts.first = first;
  experts.end = first + static_cast<int32_t>(args.gate_up.size());
  experts.hidden = static_cast<int32_t>(args.router->cols());
  experts.width = static_cast<int32_t>(args.down[0]->cols());
  static_assert(kSpanNumbers % kMixedRows == 0);
  const KernelRequest request = ExpertsRequest(
      {.experts = experts.experts,
       .experts_per_token = args.experts_per_token,
       .hidden = experts.hidden,
       .width = experts.width,
       .gate_up = Cast(args.gate_up[0]).dtype(),
       .down = Cast(args.down[0]).dtype(),
       .packed = experts.gate_up_format.is_packed() || experts.down_format.is_packed(),
       .bias = !args.gate_up_bias.empty() || !args.down_bias.empty(),
       .clamped_gate = args.gate.limit > 0,
       .ungated = args.gate.ungated,
       .weighted_inputs = args.routing.weighted_inputs},
      kMaxRows,
      options_.deterministic);
  if (experts.gate_up_format.is_packed() && experts.down_format.is_packed() &&
      Runs(KernelId::kPackedWgmmaExperts, request, device_)) {
    experts.packed_wgmma = true;
    experts.wgmma_rows = std::max(options_.wgmma_rows, kPackedWgmmaMeanRows);
  }
  const bool wgmma = Runs(KernelId::kWgmmaExperts, request, device_) ||
                     Runs(KernelId::kWgmmaFp8Experts, request, device_);
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
  BATON_RETURN_IF_ERROR(layer.maps.Reserve(std::span(maps).size_bytes()));
  BATON_RETURN_IF_ERROR(layer.maps.Write(std::as_bytes(std::span(maps))));
  experts.gate_up_maps = layer.maps.at<const CUtensorMap>();
  experts.down_maps = experts.gate_up_maps + count;
  experts.wgmma_rows = options_.wgmma_rows;
  experts.sm_count = device_.sm_count;
  return OkStatus();
}

Experts::Experts(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Experts::~Experts() = default;

StatusOr<std::unique_ptr<Experts>> Experts::Create(const DeviceProperties& device,
                                                   const ExpertsOptions& options) {
  return std::unique_ptr<Experts>(new Experts(std::make_unique<Impl>(device, options)));
}

StatusOr<PreparedExperts> Experts::Prepare(const ExpertArgs& args, int32_t first) {
  return impl_->Prepare(args, first);
}

size_t Experts::ScratchBytes(const PreparedExperts& experts, int64_t rows) {
  ExpertScratch unused;
  return Place(experts, std::min(rows, kMaxRows), nullptr, unused);
}

ExpertResults Experts::ResultsOf(const PreparedExperts& experts, int64_t rows) {
  if (rows > kMaxRows) return {};
  ExpertScratch scratch;
  Place(experts, rows, experts.scratch, scratch);
  return ResultsIn(scratch, experts);
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
    cudaError_t error = impl_->ScoresFew(rows) ? LaunchFewScores(part, experts, scratch, stream)
                                               : LaunchScores(part, experts, scratch, stream);
    if (error == cudaSuccess) error = LaunchRouting(rows, experts, scratch, stream);
    if (error == cudaSuccess) {
      error = UsesWgmma(experts, rows) ? LaunchWgmmaGemms(part, experts, scratch, stream)
                                       : LaunchGemms(part, experts, scratch, stream);
    }
    if (error == cudaSuccess && out.data != nullptr) {
      error = LaunchCombine(ResultsIn(scratch, experts), out.Rows(first, rows), stream);
    }
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace baton::cuda

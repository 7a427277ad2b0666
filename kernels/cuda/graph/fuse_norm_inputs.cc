#include <algorithm>

#include "kernels/cuda/graph/passes.h"

namespace baton::cuda {
namespace {

// A norm itself exchanges a sum of up to this many elements. A larger sum runs as a ReduceOp, whose
// kernel adds the first elements while it pushes the last ones.
constexpr int64_t kMaxElementsInNorm = int64_t{1} << 20;

// Lets a norm add up the parts of all ranks, and push this rank's part.
void FuseReduce(OpGraph& graph, size_t at, size_t producer, const ReduceOp& reduce) {
  NormOp norm = *graph.Get<NormOp>(at);
  const Tensor delta = *DeltaOf(norm);
  if (reduce.two_shot || reduce.x.dtype != DType::kBF16 || reduce.x.stride != reduce.x.cols) {
    return;
  }
  if (reduce.slot_buffer != kThroughNccl) {
    if (!CanComputeInput(norm) || reduce.x.rows * reduce.x.cols > kMaxElementsInNorm) return;
    norm.input = PeerSumInput{delta, reduce.slot_buffer};
    graph.Replace(at, norm);
    graph.Remove(producer);
    return;
  }
  if (reduce.ranks > kMaxPeerRanks) return;
  ReduceOp gather = reduce;
  gather.gather_only = true;
  PartsInput sum = {.first = delta, .parts = reduce.ranks};
  sum.first.data = reduce.parts;
  for (int32_t rank = 0; rank < reduce.ranks; ++rank) {
    sum.offsets[static_cast<size_t>(rank)] = rank * delta.rows * delta.cols;
  }
  norm.input = sum;
  graph.Replace(at, norm);
  graph.Replace(producer, ExchangeOp(gather));
}

// Whether columns that end at `ends` are whole vectors.
bool AreVectors(const std::vector<int64_t>& ends) {
  return std::ranges::all_of(ends, [](int64_t end) { return end % 8 == 0; });
}

// Lets a norm exchange the columns that it reads.
void FuseGather(OpGraph& graph, size_t at, size_t producer, const GatherColumnsOp& gather) {
  NormOp norm = *graph.Get<NormOp>(at);
  const Tensor delta = *DeltaOf(norm);
  if (gather.slot_buffer == kThroughNccl || !gather.to_all || delta.dtype != DType::kBF16 ||
      delta.rows * delta.cols > kMaxElementsInNorm || !AreVectors(gather.ends) ||
      !CanComputeInput(norm)) {
    return;
  }
  PeerColumnsInput columns = {.whole = delta, .slot_buffer = gather.slot_buffer};
  std::ranges::copy(gather.ends, columns.ends.begin());
  norm.input = columns;
  graph.Replace(at, norm);
  graph.Remove(producer);
}

// Lets a norm add up the results of the experts.
void FuseCombine(OpGraph& graph, size_t at, size_t producer, const ExpertsOp& experts) {
  NormOp norm = *graph.Get<NormOp>(at);
  if (!CanComputeInput(norm)) return;
  const ExpertResults results = Experts::ResultsOf(experts.experts, experts.out.rows);
  if (results.results == nullptr || results.cols != norm.residual.cols) return;
  ExpertsOp apart = experts;
  apart.out = {};
  norm.input = ExpertsInput{results};
  graph.Replace(at, norm);
  graph.Replace(producer, apart);
}

}  // namespace

void FuseNormInputs(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const norm = graph.Get<NormOp>(at);
    const Tensor* const delta = norm == nullptr ? nullptr : DeltaOf(*norm);
    if (delta == nullptr) continue;
    const std::optional<size_t> producer = graph.SoleProducer(at, Place::Of(*delta));
    if (!producer || !graph.CanMove(*producer, at)) continue;
    if (const auto* const reduce = graph.GetExchange<ReduceOp>(*producer)) {
      FuseReduce(graph, at, *producer, *reduce);
    } else if (const auto* const gather = graph.GetExchange<GatherColumnsOp>(*producer)) {
      FuseGather(graph, at, *producer, *gather);
    } else if (const auto* const experts = graph.Get<ExpertsOp>(*producer)) {
      FuseCombine(graph, at, *producer, *experts);
    }
  }
  graph.Refresh();
}

}  // namespace baton::cuda

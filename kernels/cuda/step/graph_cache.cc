#include "kernels/cuda/step/graph_cache.h"

#include <algorithm>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/step/trace_range.h"

namespace baton::cuda {

GraphCache::~GraphCache() {
  for (const Entry& entry : entries_) cudaGraphExecDestroy(entry.graph);
}

Status GraphCache::Launch(const std::vector<StepOp>& ops, const OpContext& context) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.ops == ops && entry.kv == context.kv; });
  if (found == entries_.end()) {
    BATON_RETURN_IF_ERROR(Capture(ops, context));
  } else if (found != entries_.begin()) {
    entries_.splice(entries_.begin(), entries_, found);
  }
  BATON_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(entries_.front().graph, context.stream));
  return OkStatus();
}

Status GraphCache::Capture(const std::vector<StepOp>& ops, const OpContext& context) {
  const TraceRange range("capture step");
  for (const StepOp& call : ops) BATON_RETURN_IF_ERROR(Prepare(call, context));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  Status status;
  for (const StepOp& call : ops) {
    status = Run(call, context);
    if (!status.ok()) break;
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(context.stream, &graph);
  if (status.ok()) status = ToStatus(ended, "cudaStreamEndCapture");
  if (!status.ok()) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // clears the error, so that later calls do not report it
    return Annotate(status, "capturing a step");
  }
  Entry entry{.ops = ops, .kv = context.kv};
  const cudaError_t error = cudaGraphInstantiate(&entry.graph, graph, 0);
  cudaGraphDestroy(graph);
  BATON_CUDA_RETURN_IF_ERROR(error);
  entries_.push_front(std::move(entry));
  if (entries_.size() > kMaxGraphs) {
    cudaGraphExecDestroy(entries_.back().graph);
    entries_.pop_back();
  }
  return OkStatus();
}

}  // namespace baton::cuda

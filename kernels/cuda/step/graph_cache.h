#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/graph/step_ops.h"

namespace baton::cuda {

// CUDA graphs of recorded steps. The key is the list of ops and the arena's KvView; both are
// compared in full. Keeps the kMaxGraphs graphs that were used last. Used by one thread.
class GraphCache final {
 public:
  static constexpr size_t kMaxGraphs = 96;

  GraphCache() = default;
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Launches `ops` as a graph on the context's stream. Captures the graph first when it is new,
  // which takes milliseconds. Errors: those of CUDA.
  Status Launch(const std::vector<StepOp>& ops, const OpContext& context);

 private:
  struct Entry {
    std::vector<StepOp> ops;
    KvView kv;
    cudaGraphExec_t graph = nullptr;
  };

  Status Capture(const std::vector<StepOp>& ops, const OpContext& context);

  std::list<Entry> entries_;  // most recently used first
};

}  // namespace baton::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/step/step_ops.h"

namespace baton::cuda {

// CUDA graphs of lists of calls over one arena, found by comparing both. Keeps the ones used last.
// One thread.
class GraphCache final {
 public:
  static constexpr size_t kMaxGraphs = 96;

  GraphCache() = default;
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Launches `calls` as a graph on the context's stream; captures it first when it is new, which
  // takes milliseconds. Errors: those of CUDA.
  Status Launch(const std::vector<StepOp>& ops, const OpContext& context);

 private:
  struct Entry {
    std::vector<StepOp> ops;
    KvView kv;
    cudaGraphExec_t graph = nullptr;
  };

  Status Capture(const std::vector<StepOp>& ops, const OpContext& context);

  std::list<Entry> entries_;  // used last first
};

}  // namespace baton::cuda

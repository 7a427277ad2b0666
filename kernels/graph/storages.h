#pragma once

#include <cstddef>
#include <vector>

#include "kernels/graph/step_graph.h"

namespace baton::graph {

// Index into Storages::all.
using StorageId = int32_t;

// The memory of a value and of those that replace it.
struct Storage {
  DType dtype = DType::kF32;
  RowCount rows = RowCount::kStep;
  int64_t cols = 0;
  // The ops that write it first and use it last, as indices of StepGraph::ops.
  size_t first = 0;
  size_t last = 0;
  bool result = false;  // has the graph's result
};

struct Storages {
  std::vector<Storage> all;
  std::vector<StorageId> of_values;  // by ValueId; -1 for a value that no op uses
};

// Finds which values share memory because ops work in place, and when the memory is in use.
Storages StoragesOf(const StepGraph& graph);

}  // namespace baton::graph

#include "kernels/graph/storages.h"

namespace baton::graph {

Storages StoragesOf(const StepGraph& graph) {
  Storages storages;
  storages.of_values.assign(graph.values().size(), -1);
  const auto use = [&](ValueId id, size_t at) {
    StorageId& storage = storages.of_values[static_cast<size_t>(id)];
    if (storage < 0) {
      const Value& value = graph.value(id);
      storage = static_cast<StorageId>(storages.all.size());
      storages.all.push_back(
          {.dtype = value.dtype, .rows = value.rows, .cols = value.cols, .first = at});
    }
    Storage& used = storages.all[static_cast<size_t>(storage)];
    used.last = at;
    used.result = used.result || graph.IsResult(id);
  };
  for (size_t at = 0; at < graph.ops().size(); ++at) {
    const Op& op = graph.ops()[at];
    for (const ValueId id : ReadBy(op)) use(id, at);
    if (const auto replacement = ReplacementOf(op)) {
      storages.of_values[static_cast<size_t>(replacement->now)] =
          storages.of_values[static_cast<size_t>(replacement->before)];
    }
    for (const ValueId id : WrittenBy(op)) use(id, at);
  }
  return storages;
}

}  // namespace baton::graph

#include "common/model/activations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "kernels/graph/storages.h"

namespace baton {
namespace {

// The values of the graphs of a decoder, as if the graphs ran one after the other.
class Timeline {
 public:
  explicit Timeline(int64_t rows) : rows_(rows) {}

  // Adds the values of a graph, whose steps have at most `logit_rows` logit rows. What the leader
  // of a pipeline receives is read while later steps run.
  void Add(const graph::StepGraph& graph, int64_t logit_rows, bool is_answer) {
    const std::array<int64_t, 3> rows = {rows_, logit_rows, 1};  // by graph::RowCount
    graph::Storages storages = graph::StoragesOf(graph);
    for (const graph::Storage& storage : storages.all) {
      uses_.push_back({.dtype = storage.dtype,
                       .reach = ReachOf(storage, is_answer),
                       .rows = rows[static_cast<size_t>(storage.rows)],
                       .cols = storage.cols,
                       .first = ops_ + storage.first,
                       .last = ops_ + (storage.result ? graph.ops().size() : storage.last)});
    }
    ends_.push_back(uses_.size());
    ops_ += graph.ops().size() + 1;
    graphs_.push_back(std::move(storages));
  }

  const std::vector<ValueUse>& uses() const { return uses_; }

  // The tensors of the values of the graph that was added as number `index`.
  std::vector<Tensor> Of(size_t index, std::span<const Tensor> placed) const {
    const std::span<const Tensor> of_graph = placed.subspan(index == 0 ? 0 : ends_[index - 1]);
    std::vector<Tensor> tensors;
    for (const graph::StorageId id : graphs_[index].of_values) {
      tensors.push_back(id < 0 ? Tensor{} : of_graph[static_cast<size_t>(id)]);
    }
    return tensors;
  }

 private:
  static ValueReach ReachOf(const graph::Storage& storage, bool is_answer) {
    if (is_answer) return ValueReach::kAlways;
    return storage.result ? ValueReach::kResult : ValueReach::kStep;
  }

  const int64_t rows_;
  size_t ops_ = 0;
  std::vector<ValueUse> uses_;
  std::vector<size_t> ends_;  // of the uses of each graph
  std::vector<graph::Storages> graphs_;
};

}  // namespace

StatusOr<Activations> Activations::Place(const DecoderGraphs& graphs,
                                         int32_t max_rows,
                                         int32_t max_logit_rows,
                                         Ops& ops) {
  constexpr size_t kBoth = StepKindOf(1, RowResults::kBoth);
  constexpr size_t kStates = StepKindOf(1, RowResults::kStates);
  const int64_t logit_rows = ops.PaddedRows(max_logit_rows);
  const int64_t state_rows = ops.PaddedRows(std::max(max_rows, max_logit_rows));
  Timeline timeline(ops.PaddedRows(max_rows));
  for (size_t i = 0; i < graphs.size(); ++i) {
    timeline.Add(graphs[i].stage, i == kStates ? state_rows : logit_rows, /*is_answer=*/false);
  }
  // What the leader of a pipeline receives is in memory of its own. Logits are where they are with
  // both results.
  timeline.Add(graphs[0].answer, logit_rows, /*is_answer=*/true);
  timeline.Add(graphs[kBoth].answer, logit_rows, /*is_answer=*/true);
  timeline.Add(graphs[kStates].answer, state_rows, /*is_answer=*/true);
  auto placed = ops.PlaceValues(timeline.uses());
  if (!placed.ok()) {
    return Status(placed.status().code(),
                  fmt::format("activations of steps of {} tokens (engine.max_step_tokens) {}",
                              max_rows,
                              Message(placed.status())));
  }
  Activations all;
  all.placed_ = *std::move(placed);
  const std::span<const Tensor> tensors(all.placed_.tensors);
  const std::vector<Tensor> signal = timeline.Of(graphs.size(), tensors);
  const std::vector<Tensor> both = timeline.Of(graphs.size() + 1, tensors);
  const std::vector<Tensor> states = timeline.Of(graphs.size() + 2, tensors);
  for (size_t i = 0; i < graphs.size(); ++i) {
    all.tensors_[i] = {timeline.Of(i, tensors), i == 0 ? signal : both};
  }
  if (!both.empty()) {
    all.tensors_[StepKindOf(1, RowResults::kLogits)].answer = {both.front()};
    all.tensors_[kStates].answer = states;
  }
  return all;
}

}  // namespace baton

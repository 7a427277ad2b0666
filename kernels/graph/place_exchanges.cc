#include "kernels/graph/place_exchanges.h"

#include <utility>
#include <variant>
#include <vector>

namespace baton::graph {
namespace {

// Whether an op reads only what this rank has computed of its operands.
bool ReadsShare(const Op& op) {
  return std::holds_alternative<GatherRowsOp>(op) || std::holds_alternative<ActivateOp>(op) ||
         std::holds_alternative<SoftCapOp>(op) || std::holds_alternative<MultiplyOp>(op) ||
         std::holds_alternative<SigmoidGateOp>(op);
}

class Placer {
 public:
  explicit Placer(StepGraph& graph)
      : graph_(graph),
        exchanged_(graph.values().size()),
        read_whole_(graph.values().size(), false) {
    for (size_t i = 0; i < exchanged_.size(); ++i) exchanged_[i] = static_cast<ValueId>(i);
  }

  void Run() {
    std::vector<Op> ops = graph_.TakeOps();
    for (const Op& op : ops) {
      if (ReadsShare(op)) continue;
      for (const ValueId id : ReadBy(op)) read_whole_[static_cast<size_t>(id)] = true;
    }
    for (const Op& op : ops) Append(op);
    AwaitKv();
    std::vector<ValueId> results = graph_.results();
    for (ValueId& id : results) id = NowOf(id);
    graph_.set_results(std::move(results));
  }

 private:
  // The value that has all of `id`.
  ValueId NowOf(ValueId id) const { return exchanged_[static_cast<size_t>(id)]; }

  void Append(Op op) {
    if (const auto* const written = std::get_if<KvWrittenOp>(&op)) {
      written_.push_back(*written);
      return;
    }
    // What is sent may be the last op of a step, and the next layer has a KvWrittenOp of its own.
    if (std::holds_alternative<RopeAndWriteKvOp>(op) || std::holds_alternative<WriteLatentOp>(op) ||
        std::holds_alternative<RecurrentOp>(op) || std::holds_alternative<ConvolveOp>(op) ||
        std::holds_alternative<SendOp>(op) || std::holds_alternative<SignalOp>(op)) {
      AwaitKv();
    }
    for (const ValueId id : ReadBy(op)) ReplaceReads(op, id, NowOf(id));
    const std::vector<ValueId> outs = WrittenBy(op);
    graph_.Append(op);
    for (const ValueId id : outs) Exchange(id);
  }

  void Exchange(ValueId id) {
    const bool is_result = graph_.IsResult(id);
    if (!read_whole_[static_cast<size_t>(id)] && !is_result) return;
    Value whole = graph_.value(id);
    if (std::holds_alternative<Whole>(whole.share)) return;
    const bool adds = std::holds_alternative<Summand>(std::exchange(whole.share, Whole{}));
    const ValueId all = graph_.Add(std::move(whole));
    exchanged_[static_cast<size_t>(id)] = all;
    if (adds) {
      graph_.Append(AllReduceOp{.x = id, .out = all});
    } else {
      graph_.Append(GatherColumnsOp{.x = id, .to_all = !is_result, .out = all});
    }
    ReportKv();
  }

  void ReportKv() {
    for (const KvWrittenOp& op : written_) graph_.Append(op);
    written_.clear();
  }

  void AwaitKv() {
    if (written_.empty()) return;
    graph_.Append(BarrierOp{});
    ReportKv();
  }

  StepGraph& graph_;
  std::vector<ValueId> exchanged_;  // by value: NowOf
  std::vector<bool> read_whole_;    // by value
  std::vector<KvWrittenOp> written_;
};

}  // namespace

void PlaceExchanges(StepGraph& graph) {
  Placer(graph).Run();
}

}  // namespace baton::graph

#include "kernels/graph/step_graph.h"

#include <fmt/format.h>

#include "common/base/overloaded.h"

namespace baton::graph {
namespace {

// Calls `call` with the operands that `members` names.
template <class Op, class Names, class F>
void ForOperands(Op& op, const Names& members, const F& call) {
  for (const auto member : members) call(op.*member);
}

std::string TextOf(const StepGraph& graph, ValueId id) {
  return fmt::format("v{}:{}", id, graph.value(id).name);
}

// What Check knows of a graph's values after some of its ops.
class Checker {
 public:
  explicit Checker(const StepGraph& graph)
      : graph_(graph),
        written_(graph.values().size(), false),
        replaced_by_(graph.values().size(), -1) {}

  Status Read(const Op& op, ValueId id) const {
    const auto at = static_cast<size_t>(id);
    if (!written_[at]) return Wrong(op, id, "is read before it is written");
    if (replaced_by_[at] < 0) return OkStatus();
    return Wrong(op, id, fmt::format("is read after v{} has replaced it", replaced_by_[at]));
  }

  Status Write(const Op& op, ValueId id) {
    if (written_[static_cast<size_t>(id)]) return Wrong(op, id, "is written twice");
    written_[static_cast<size_t>(id)] = true;
    return OkStatus();
  }

  Status Replace(const Op& op, const Replacement& replacement) {
    const Value& before = graph_.value(replacement.before);
    const Value& now = graph_.value(replacement.now);
    if (before.dtype != now.dtype || before.rows != now.rows || before.cols != now.cols) {
      return Wrong(op,
                   replacement.now,
                   fmt::format("replaces v{}, which has another shape", replacement.before));
    }
    replaced_by_[static_cast<size_t>(replacement.before)] = replacement.now;
    return OkStatus();
  }

 private:
  Status Wrong(const Op& op, ValueId id, std::string_view what) const {
    return MakeStatus(
        StatusCode::kFailedPrecondition, "{}: {} {}", Name(op), TextOf(graph_, id), what);
  }

  const StepGraph& graph_;
  std::vector<bool> written_;         // by value
  std::vector<ValueId> replaced_by_;  // by value; -1: not replaced
};

}  // namespace

std::vector<ValueId> ReadBy(const Op& op) {
  std::vector<ValueId> ids;
  std::visit(
      [&](const auto& one) {
        ForOperands(one, one.kReads, [&](ValueId id) { ids.push_back(id); });
      },
      op);
  return ids;
}

void ReplaceReads(Op& op, ValueId from, ValueId to) {
  std::visit(
      [&](auto& one) {
        ForOperands(one, one.kReads, [&](ValueId& id) {
          if (id == from) id = to;
        });
      },
      op);
}

std::vector<ValueId> WrittenBy(const Op& op) {
  std::vector<ValueId> ids;
  std::visit(
      [&](const auto& one) {
        ForOperands(one, one.kWrites, [&](ValueId id) { ids.push_back(id); });
      },
      op);
  return ids;
}

std::optional<Replacement> ReplacementOf(const Op& op) {
  using Result = std::optional<Replacement>;
  return std::visit(Overloaded{[](const AddOp& o) -> Result {
                                 return Replacement{o.residual, o.out};
                               },
                               [](const AddNormOp& o) -> Result {
                                 return Replacement{o.residual, o.sum};
                               },
                               [](const RopeAndWriteKvOp& o) -> Result {
                                 return Replacement{o.qkv, o.out};
                               },
                               [](const ScaleOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const SoftCapOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const ActivateOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const MultiplyOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const SigmoidGateOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const ProjectionNormOp& o) -> Result {
                                 return Replacement{o.qkv, o.out};
                               },
                               [](const HeadLayerNormOp& o) -> Result {
                                 return Replacement{o.qkv, o.out};
                               },
                               [](const WriteLatentOp& o) -> Result {
                                 return Replacement{o.kv, o.out};
                               },
                               [](const WriteIndexKeysOp& o) -> Result {
                                 return Replacement{o.k, o.out};
                               },
                               [](const AllReduceOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const GatherColumnsOp& o) -> Result {
                                 return Replacement{o.x, o.out};
                               },
                               [](const auto& /*o*/) -> Result { return std::nullopt; }},
                    op);
}

std::string_view Name(const Op& op) {
  return std::visit([](const auto& one) { return one.kName; }, op);
}

Status Check(const StepGraph& graph) {
  Checker checker(graph);
  for (const Op& op : graph.ops()) {
    for (const ValueId id : ReadBy(op)) BATON_RETURN_IF_ERROR(checker.Read(op, id));
    for (const ValueId id : WrittenBy(op)) BATON_RETURN_IF_ERROR(checker.Write(op, id));
    if (const auto replacement = ReplacementOf(op)) {
      BATON_RETURN_IF_ERROR(checker.Replace(op, *replacement));
    }
  }
  return OkStatus();
}

std::string ToString(const StepGraph& graph) {
  std::string text;
  for (const Op& op : graph.ops()) {
    std::string_view before;
    for (const ValueId id : WrittenBy(op)) {
      text += fmt::format("{}{}", before, TextOf(graph, id));
      before = ", ";
    }
    text += fmt::format("{}{}", before.empty() ? "" : " = ", Name(op));
    for (const ValueId id : ReadBy(op)) text += fmt::format(" v{}", id);
    text += '\n';
  }
  return text;
}

}  // namespace baton::graph

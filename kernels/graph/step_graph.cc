#include "kernels/graph/step_graph.h"

#include <fmt/format.h>

namespace baton::graph {
namespace {

// Calls `call` with the operands that `members` names.
template <class Op, class Names, class F>
void ForOperands(Op& op, const Names& members, const F& call) {
  for (const auto member : members) call(op.*member);
}

std::string TextOf(const StepGraph& graph, std::span<const BufferShape> buffers, ValueId id) {
  return fmt::format("v{}:{}", id, buffers[static_cast<size_t>(graph.value(id).buffer)].name);
}

// What Check knows of a graph's values after some of its ops.
class Checker {
 public:
  Checker(const StepGraph& graph, std::span<const BufferShape> buffers)
      : graph_(graph),
        buffers_(buffers),
        written_(graph.values().size(), false),
        newest_(buffers.size(), -1) {}

  Status Read(const Op& op, ValueId id) const {
    if (!written_[static_cast<size_t>(id)]) return Wrong(op, id, "is read before it is written");
    const ValueId newest = newest_[static_cast<size_t>(graph_.value(id).buffer)];
    if (newest == id) return OkStatus();
    return Wrong(op, id, fmt::format("is read after v{} has taken its buffer", newest));
  }

  Status Write(const Op& op, ValueId id) {
    if (written_[static_cast<size_t>(id)]) return Wrong(op, id, "is written twice");
    const Value& value = graph_.value(id);
    const int64_t room = buffers_[static_cast<size_t>(value.buffer)].cols;
    if (value.cols > room) {
      return Wrong(op, id, fmt::format("has {} columns, its buffer {}", value.cols, room));
    }
    written_[static_cast<size_t>(id)] = true;
    newest_[static_cast<size_t>(value.buffer)] = id;
    return OkStatus();
  }

 private:
  Status Wrong(const Op& op, ValueId id, std::string_view what) const {
    return MakeStatus(
        StatusCode::kFailedPrecondition, "{}: {} {}", Name(op), TextOf(graph_, buffers_, id), what);
  }

  const StepGraph& graph_;
  const std::span<const BufferShape> buffers_;
  std::vector<bool> written_;    // by value
  std::vector<ValueId> newest_;  // by buffer
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

std::string_view Name(const Op& op) {
  return std::visit([](const auto& one) { return one.kName; }, op);
}

Status Check(const StepGraph& graph, std::span<const BufferShape> buffers) {
  Checker checker(graph, buffers);
  for (const Op& op : graph.ops()) {
    for (const ValueId id : ReadBy(op)) BATON_RETURN_IF_ERROR(checker.Read(op, id));
    for (const ValueId id : WrittenBy(op)) BATON_RETURN_IF_ERROR(checker.Write(op, id));
  }
  return OkStatus();
}

std::string ToString(const StepGraph& graph, std::span<const BufferShape> buffers) {
  std::string text;
  for (const Op& op : graph.ops()) {
    std::string_view before;
    for (const ValueId id : WrittenBy(op)) {
      text += fmt::format("{}{}", before, TextOf(graph, buffers, id));
      before = ", ";
    }
    text += fmt::format("{}{}", before.empty() ? "" : " = ", Name(op));
    for (const ValueId id : ReadBy(op)) text += fmt::format(" v{}", id);
    text += '\n';
  }
  return text;
}

}  // namespace baton::graph

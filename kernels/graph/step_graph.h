#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "kernels/graph/step_ops.h"
#include "kernels/tensor.h"

// A step as a graph: ops over values. Each op states which values it reads and which one it writes,
// so that passes can see who reads a value. Values have no memory yet (storages.h). A decoder
// builds its graphs once, for any number of rows; RunGraph runs one with the rows of a step.
namespace baton::graph {

// How many rows a value has.
enum class RowCount : uint8_t {
  kStep,    // the rows of the step
  kLogits,  // the rows for which logits are computed
  kOne,
};

// What this tensor rank computes of a value.
struct Whole {
  bool operator==(const Whole&) const = default;
};
// Tensor rank r computes columns ends[r − 1] … ends[r] − 1 (from 0 on for rank 0).
struct Columns {
  std::vector<int64_t> ends;
  bool operator==(const Columns&) const = default;
};
// The value is the sum of what the tensor ranks compute.
struct Summand {
  bool operator==(const Summand&) const = default;
};
using Share = std::variant<Whole, Columns, Summand>;

struct Value {
  std::string_view name;  // for messages; a literal
  DType dtype = DType::kF32;
  RowCount rows = RowCount::kStep;
  int64_t cols = 0;
  Share share = Whole{};
};

// The values that `op` reads, in a fixed order.
std::vector<ValueId> ReadBy(const Op& op);
// Lets `op` read `to` wherever it reads `from`.
void ReplaceReads(Op& op, ValueId from, ValueId to);
// The values that `op` writes.
std::vector<ValueId> WrittenBy(const Op& op);
// An op that works in place writes `now` into the memory of `before`.
struct Replacement {
  ValueId before = 0;
  ValueId now = 0;
};
std::optional<Replacement> ReplacementOf(const Op& op);
std::string_view Name(const Op& op);

// Values, and ops in the order in which they run.
class StepGraph {
 public:
  ValueId Add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<ValueId>(values_.size()) - 1;
  }
  void Append(const Op& op) { ops_.push_back(op); }

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Op>& ops() const { return ops_; }
  // Takes the ops out of the graph, for a pass that appends others.
  std::vector<Op> TakeOps() { return std::exchange(ops_, {}); }

  // The values that the leader reads when the graph has run, such as the logits.
  const std::vector<ValueId>& results() const { return results_; }
  void AddResult(ValueId id) { results_.push_back(id); }
  void set_results(std::vector<ValueId> ids) { results_ = std::move(ids); }
  bool IsResult(ValueId id) const { return std::ranges::find(results_, id) != results_.end(); }

 private:
  std::vector<Value> values_;
  std::vector<Op> ops_;
  std::vector<ValueId> results_;
};

// Checks that each value is written once and before it is read, that no value is read after another
// one has replaced it, and that a value that replaces another has its shape. Errors:
// FailedPrecondition, naming the op and the value.
Status Check(const StepGraph& graph);

// A line for each op, for example "v3:delta = MatMul v2".
std::string ToString(const StepGraph& graph);

}  // namespace baton::graph

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cuda/graph/op_places.h"

namespace baton::cuda {

// The ops of a step with the values that they read and write, for passes that fuse ops. Each write
// of an op makes a new value. An op reads the value that was last written where its operand is, so
// that buffers may be used again and ops may write in place. A value is the whole of what an op
// wrote: an operand that only partly is such a value has no producer.
class OpGraph final {
 public:
  explicit OpGraph(std::vector<StepOp> ops);

  // Ops are numbered in the order in which they run. A removed op keeps its number.
  size_t size() const { return nodes_.size(); }
  const StepOp& op(size_t at) const { return nodes_[at].op; }
  // Op `at` as `Op`; null when it is of another kind or was removed.
  template <class Op>
  const Op* Get(size_t at) const {
    return nodes_[at].removed ? nullptr : std::get_if<Op>(&nodes_[at].op);
  }
  // As Get, for an exchange.
  template <class Op>
  const Op* GetExchange(size_t at) const {
    const auto* const exchange = Get<ExchangeOp>(at);
    return exchange == nullptr ? nullptr : std::get_if<Op>(exchange);
  }

  // The op that wrote the operand of op `reader` that is at `operand`. Nothing if the step does not
  // write it, or if several ops wrote parts of it.
  std::optional<size_t> Producer(size_t reader, const Place& operand) const;
  // The ops that wrote the operand, or parts of it, in the order of the list.
  std::vector<size_t> Producers(size_t reader, const Place& operand) const;
  // As Producer, if op `reader` is the only one that reads the value.
  std::optional<size_t> SoleProducer(size_t reader, const Place& operand) const;
  // The op that last wrote into the operand, which may be a part of it, if no other op did since
  // the operand as a whole was written.
  std::optional<size_t> LastWriter(size_t reader, const Place& operand) const;

  // Whether op `from` may run where op `to` is: no op between them writes what it reads, or reads
  // or writes what it writes. Exchanges and notifications keep their order with all other ops.
  bool CanMove(size_t from, size_t to) const;

  // Changes to the ops. The values are those of the ops as they were when the pass began, until
  // Refresh.
  void Replace(size_t at, StepOp op);
  void Remove(size_t at);
  // Finds the values of the changed ops.
  void Refresh();

  // The ops that were not removed.
  std::vector<StepOp> Take();

 private:
  // Index into values_.
  using ValueId = int32_t;

  struct Value {
    size_t producer = 0;
    int32_t readers = 0;
    Place place;
  };
  // The values that an operand overlaps, in read_values_.
  struct Read {
    size_t first = 0;
    size_t values = 0;
  };
  // A value that no op has overwritten yet. No two of them overlap.
  struct Live {
    Place place;
    ValueId id = 0;
  };
  struct Node {
    StepOp op;
    bool removed = false;
    // The ends of the op's places in read_places_ and write_places_. They begin where those of the
    // op before end.
    size_t reads_end = 0;
    size_t writes_end = 0;
  };

  void FindValues();
  // Appends to reads_ what an op reads at `place`, while FindValues is at the op.
  void FindRead(const Place& place);
  std::span<const Place> reads(size_t at) const;
  std::span<const Place> writes(size_t at) const;
  // The values that op `reader` reads at `operand`; none when the step has not written there.
  std::span<const ValueId> ValuesOf(size_t reader, const Place& operand) const;
  // The value, if there is one and its producer was not removed; else null.
  const Value* OnlyValue(size_t reader, const Place& operand) const;

  std::vector<Node> nodes_;
  std::vector<Place> read_places_;
  std::vector<Read> reads_;           // of each of read_places_
  std::vector<ValueId> read_values_;  // in the order in which they were written
  std::vector<Place> write_places_;
  std::vector<Value> values_;
  std::vector<Live> live_;  // while FindValues runs
  bool changed_ = false;
};

}  // namespace baton::cuda

#include "kernels/cuda/graph/bind_memory.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_map>

#include "common/base/check.h"
#include "kernels/cuda/graph/op_places.h"
#include "kernels/memory_plan.h"

namespace baton::cuda {
namespace {

// Calls `call` with each pointer of an op that may point into a ValueSpace, as std::byte*&, and
// with the bytes from there on that the op uses. Of scratch memory, an op may use the whole block.
template <class Call>
class Pointers {
 public:
  explicit Pointers(Call& call) : call_(call) {}

  void operator()(EmbedOp& op) { Use(op.out); }
  void operator()(AddOp& op) {
    Use(op.residual);
    Use(op.delta);
  }
  void operator()(QuantizeOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(RescaleOp& op) {
    Use(op.x);
    Use(op.scales);
  }
  void operator()(NormOp& op) {
    Use(op.residual);
    std::visit(*this, op.input);
    Use(op.out);
    Use(op.fp8_out);
  }
  void operator()(ActivationNormOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(MatMulOp& op) {
    GemmProblem& problem = op.problem;
    Use(problem.x, problem.x_dtype, problem.rows, problem.k, problem.x_stride);
    const int64_t cols = problem.silu_mul ? problem.n / 2 : problem.n;
    Use(problem.out, problem.out_dtype, problem.rows, cols, problem.out_stride);
    Use(problem.residual, DType::kF32, 1, problem.k, problem.k);
    Use(problem.x_scales, DType::kF32, 1, problem.rows, problem.rows);
    if (problem.widened != nullptr) Use(problem.widened);
  }
  void operator()(SiluMulOp& op) {
    Use(op.gate_up);
    Use(op.scales);
    Use(op.out);
    Use(op.fp8_out);
  }
  void operator()(ExpertsOp& op) {
    Use(op.x);
    Use(op.experts.scratch);
    Use(op.out);
  }
  void operator()(RoundOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(AnglesOp& op) { Use(op.angles); }
  void operator()(RopeOp& op) {
    Use(op.qkv);
    Use(op.scales);
    Use(op.angles);
  }
  void operator()(AttentionOp& op) {
    Use(op.qkv);
    Use(op.out);
    Use(op.packed);
    Use(op.fp8_out);
  }
  void operator()(GatherOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(CopyRowsOp& op) { Use(op.x); }
  void operator()(SampleOp& op) { Use(op.logits); }
  void operator()(NotifyOp& /*op*/) {}
  void operator()(FamilyOp& op) { std::visit(*this, op); }
  void operator()(LatentOp& op) { std::visit(*this, op); }
  void operator()(RecurrentOp& op) { std::visit(*this, op); }
  void operator()(ExchangeOp& op) { std::visit(*this, op); }

  void operator()(ScaleOp& op) { Use(op.x); }
  void operator()(LayerNormOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(ActivateOp& op) { Use(op.x); }
  void operator()(MultiplyOp& op) {
    Use(op.x);
    Use(op.factors);
  }
  void operator()(SoftCapOp& op) { Use(op.x); }
  void operator()(SigmoidGateOp& op) {
    Use(op.x);
    Use(op.gate);
  }
  void operator()(HeadSquaresOp& op) {
    Use(op.qkv);
    Use(op.out);
  }
  void operator()(ProjectionNormOp& op) {
    Use(op.qkv);
    Use(op.squares);
  }
  void operator()(HeadLayerNormOp& op) { Use(op.qkv); }
  void operator()(BiasOp& op) { Use(op.x); }
  void operator()(DotOp& op) {
    Use(op.x);
    Use(op.out);
  }

  void operator()(WriteLatentOp& op) {
    Use(op.kv);
    Use(op.angles.at);
  }
  void operator()(HeadGemmOp& op) {
    Use(op.x);
    Use(op.out);
    Use(op.angles.at);
  }
  void operator()(AttendLatentsOp& op) {
    Use(op.q);
    Use(op.out);
  }

  void operator()(ConvolveOp& op) {
    Use(op.x);
    Use(op.out);
  }
  void operator()(UpdateStatesOp& op) {
    Use(op.convolved);
    Use(op.x);
    Use(op.gates);
    Use(op.out);
  }
  void operator()(FinishRowsOp& op) {
    Use(op.outputs);
    Use(op.convolved);
    Use(op.x);
    Use(op.out);
  }
  void operator()(DecodeRowsOp& op) {
    Use(op.x);
    Use(op.gates);
    Use(op.out);
  }
  void operator()(ChunkRowsOp& op) {
    Use(op.x);
    Use(op.gates);
    Use(op.memory);
    Use(op.out);
  }
  void operator()(ScanOp& op) {
    Use(op.v);
    Use(op.gates);
    Use(op.k);
    Use(op.q);
    Use(op.out);
  }

  void operator()(ReduceOp& op) {
    Use(op.x);
    Use(op.parts);
  }
  void operator()(PutOp& op) {
    for (Put& put : op.puts) Use(put.copy);
  }
  void operator()(AwaitPutOp& op) {
    for (ByteCopy& copy : op.copies) Use(copy);
  }
  void operator()(GatherColumnsOp& op) {
    Use(op.whole);
    Use(op.mine);
    Use(op.packed);
  }
  void operator()(BarrierOp& op) { Use(op.flags); }
  void operator()(StageOp& op) {
    Use(op.x);
    Use(op.packed);
  }
  void operator()(ShareTokensOp& /*op*/) {}

  void operator()(NoInput& /*input*/) {}
  void operator()(DeltaInput& input) {
    Use(input.delta);
    Use(input.scales);
  }
  void operator()(PartsInput& input) { UseWithOffsets(input.first, input.offsets); }
  void operator()(PackedColumnsInput& input) { UseWithOffsets(input.mine, input.offsets); }
  void operator()(PeerSumInput& input) { Use(input.mine); }
  void operator()(PeerColumnsInput& input) { Use(input.whole); }
  void operator()(ExpertsInput& input) {
    Use(input.results.results);
    Use(input.results.slots);
    Use(input.results.experts);
    Use(input.results.weights);
  }

 private:
  template <class T>
  void Use(T*& pointer, size_t bytes = 1) {
    if (pointer == nullptr) return;
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    auto* at = const_cast<std::byte*>(reinterpret_cast<Byte*>(pointer));
    call_(at, bytes);
    pointer = reinterpret_cast<T*>(at);
  }
  template <class T>
  void Use(T*& pointer, DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    Use(pointer, static_cast<size_t>((rows - 1) * stride + cols) * ShapeOf(dtype).bytes);
  }
  void Use(Tensor& x) { Use(x.data, x.dtype, x.rows, x.cols, x.stride); }
  void Use(Fp8Rows& x) {
    Use(x.data);
    Use(x.scales);
  }
  void Use(OutputScales& scales) { Use(scales.rows); }
  void Use(ByteCopy& copy) {
    Use(copy.from, copy.bytes);
    Use(copy.to, copy.bytes);
  }

  // Offsets count elements from `first` on. Those that lead to memory that stays where it is change
  // when `first` moves.
  template <class Offsets>
  void UseWithOffsets(Tensor& first, Offsets& offsets) {
    const std::byte* const before = first.data;
    const auto element = static_cast<int64_t>(ShapeOf(first.dtype).bytes);
    std::array<bool, std::tuple_size_v<Offsets>> moves = {};
    for (size_t i = 0; i < offsets.size(); ++i) {
      moves[i] = call_.SameBlock(before, before + offsets[i] * element);
    }
    Use(first);
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (!moves[i]) offsets[i] += (before - first.data) / element;
    }
  }

  Call& call_;
};

// Finds when each block is in use, and how much of it.
class Uses {
 public:
  Uses(const ValueSpace& space, size_t ops) : space_(space), ops_(ops) {
    if (space.results().bytes == 0 || !space.keeps_results()) return;
    Add(space.results(), 0);
  }

  // Ops are visited in order.
  void Visit(size_t at, StepOp& op) {
    at_ = at;
    std::visit(Pointers(*this), op);
    auto* const exchange = std::get_if<ExchangeOp>(&op);
    if (exchange == nullptr) return;
    if (const auto* const put = std::get_if<PutOp>(exchange)) Begin(*put);
    if (const auto* const await = std::get_if<AwaitPutOp>(exchange)) End(await->put_buffer);
  }

  void operator()(std::byte* at, size_t bytes) {
    const ValueSpace::Block* const block = space_.Find(at);
    if (block == nullptr) return;
    const auto end = static_cast<size_t>(at - block->begin) + bytes;
    Add(*block, end);
  }
  bool SameBlock(const std::byte* a, const std::byte* b) const {
    return space_.Find(a) == space_.Find(b);
  }

  // The copies of puts that the step does not await read until its end.
  std::span<const Lifetime> Finish() {
    for (const auto& [buffer, blocks] : copying_) {
      for (const size_t index : blocks) lifetimes_[index].last = ops_;
    }
    return lifetimes_;
  }
  // The index of the block's lifetime.
  size_t IndexOf(const ValueSpace::Block& block) const { return indices_.at(block.begin); }

 private:
  size_t Add(const ValueSpace::Block& block, size_t end) {
    const bool is_result = block.begin == space_.results().begin;
    const auto [found, added] = indices_.try_emplace(block.begin, lifetimes_.size());
    if (added) lifetimes_.push_back({.first = at_});
    Lifetime& lifetime = lifetimes_[found->second];
    lifetime.last = is_result ? ops_ : at_;
    // An op may use all of a scratch block.
    lifetime.bytes =
        is_result || space_.IsScratch(block) ? block.bytes : std::max(lifetime.bytes, end);
    if (is_result) lifetime.offset = 0;
    return found->second;
  }

  void Begin(const PutOp& op) {
    for (const Put& put : op.puts) {
      const ValueSpace::Block* const block = space_.Find(put.copy.from);
      if (block != nullptr) copying_[op.put_buffer].push_back(IndexOf(*block));
    }
  }
  void End(int32_t put_buffer) {
    for (const size_t index : copying_[put_buffer]) {
      lifetimes_[index].last = std::max(lifetimes_[index].last, at_);
    }
    copying_.erase(put_buffer);
  }

  const ValueSpace& space_;
  const size_t ops_;
  size_t at_ = 0;
  std::unordered_map<const std::byte*, size_t> indices_;  // by the begin of the block
  std::vector<Lifetime> lifetimes_;
  std::map<int32_t, std::vector<size_t>> copying_;  // by put buffer: what copy engines read
};

// Moves pointers from blocks to their memory.
class Mover {
 public:
  Mover(const ValueSpace& space, const Uses& uses, std::span<const size_t> offsets, std::byte* base)
      : space_(space), uses_(uses), offsets_(offsets), base_(base) {}

  void operator()(std::byte*& at, size_t /*bytes*/) const {
    const ValueSpace::Block* const block = space_.Find(at);
    if (block == nullptr) return;
    at = base_ + offsets_[uses_.IndexOf(*block)] + (at - block->begin);
  }
  bool SameBlock(const std::byte* a, const std::byte* b) const { return uses_.SameBlock(a, b); }

 private:
  const ValueSpace& space_;
  const Uses& uses_;
  const std::span<const size_t> offsets_;
  std::byte* const base_;
};

// A pointer that Pointers leaves out would make a kernel use an address that stands for memory.
void CheckPlaces(const std::vector<StepOp>& ops, const ValueSpace& space) {
  std::vector<Place> places;
  for (const StepOp& op : ops) {
    places.clear();
    AppendPlaces(op, places, places);
    for (const Place& place : places) {
      const ValueSpace::Block* const block = space.Find(place.data);
      BATON_CHECK(block == nullptr || block == &space.results(),
                  "an op of kind {} has an operand without memory",
                  op.index());
    }
  }
}

}  // namespace

StepMemory BindMemory(std::vector<StepOp>& ops, const ValueSpace& space, std::byte* base) {
  Uses uses(space, ops.size());
  for (size_t at = 0; at < ops.size(); ++at) uses.Visit(at, ops[at]);
  const MemoryPlan plan = PlanMemory(uses.Finish());
  Mover mover(space, uses, plan.offsets, base);
  for (StepOp& op : ops) std::visit(Pointers(mover), op);
  CheckPlaces(ops, space);
  return {.bytes = plan.bytes, .in_use = plan.in_use};
}

}  // namespace baton::cuda

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kernels/collective.h"
#include "kernels/tensor.h"

namespace baton {

// The place of one rank in its group of tensor_parallel · pipeline_parallel ranks.
struct RankPlace {
  int32_t tensor_parallel = 1;    // ranks that hold slices of the same layers
  int32_t pipeline_parallel = 1;  // stages; each holds other layers
  int32_t tensor_rank = 0;
  int32_t stage = 0;

  // Rank `rank` of the group is tensor rank `rank` mod `tensor_parallel` of its stage.
  static RankPlace Of(int32_t tensor_parallel, int32_t pipeline_parallel, int32_t rank) {
    return {tensor_parallel, pipeline_parallel, rank % tensor_parallel, rank / tensor_parallel};
  }
  // The leader is the rank that samples tokens.
  bool leader() const { return tensor_rank == 0 && stage == 0; }

  bool operator==(const RankPlace&) const = default;
};

inline RankPlace PlaceIn(const RankGroups& groups) {
  RankPlace place;
  if (groups.tensor != nullptr) {
    place.tensor_parallel = groups.tensor->size();
    place.tensor_rank = groups.tensor->rank();
  }
  if (groups.pipeline != nullptr) {
    place.pipeline_parallel = groups.pipeline->size();
    place.stage = groups.pipeline->rank();
  }
  return place;
}

// How the tensor-parallel ranks of a stage divide the products of attention output and down.
// CPUs gather, and so do GPUs in deterministic mode.
enum class ExchangeMode : uint8_t {
  // A rank multiplies some rows (outputs) by the complete activations, which are gathered before.
  // A row's bits do not depend on the number of ranks.
  kGather,
  // A rank multiplies some columns (inputs) by its own activations, and the products are summed,
  // which moves fewer bytes in fewer exchanges.
  kReduce,
};

// The ops of a step through which the ranks of a group exchange activations. Every rank of the
// group must call the same ops in the same order with the same sizes. As other ops, they may run at
// any time before AwaitStep returns, and IssueStep or AwaitStep returns their errors. After the
// first error of a step, its later exchanges do nothing, and no notification is called.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const RankPlace& place() const = 0;
  virtual ExchangeMode mode() const = 0;
  // How the tensor ranks exchange, for a log line.
  virtual std::string description() const = 0;

  // The time of all exchanges so far, waits for other ranks included. Nothing where the exchanges
  // run on a device, beside this thread.
  virtual std::optional<Duration> time_spent() const { return std::nullopt; }

  // Tensor rank r has computed columns ends[r − 1] … ends[r] − 1 of every row of `whole` (from 0 on
  // for rank 0). Afterwards every tensor rank has all columns.
  virtual void AllGather(const Tensor& whole, std::span<const int64_t> ends) = 0;
  // The same, but only tensor rank 0 has all columns afterwards.
  virtual void GatherToFirst(const Tensor& whole, std::span<const int64_t> ends) = 0;
  // Replaces `x` on every tensor rank by the sum over the tensor ranks, with equal bits on all. A
  // number that is −0 on all other ranks keeps its bits.
  virtual void AllReduce(const Tensor& x) = 0;
  // Later ops run when all tensor ranks have finished their earlier ops.
  virtual void Barrier() = 0;
  // Sends `x` to the rank of another stage with the same tensor rank. That rank receives a tensor
  // of the same shape.
  virtual void SendToStage(const Tensor& x, int32_t stage) = 0;
  virtual void ReceiveFromStage(const Tensor& x, int32_t stage) = 0;
  // Whether SendToStage of `bytes` bytes ends although the other stage does not receive them yet,
  // when that stage has received everything before.
  virtual bool SendsAhead(size_t bytes) const = 0;
};

}  // namespace baton

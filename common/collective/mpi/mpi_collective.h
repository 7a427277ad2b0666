#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/collective/mpi/mpi_runtime.h"
#include "common/collective/packed_rows.h"
#include "kernels/collective.h"

namespace baton {

// A collective of ranks on any hosts, from MPI's messages between two ranks: a message that does
// not come names its rank, which MPI's own collectives do not tell, and sums are added in the order
// of the ranks. Every byte is copied once on each side, so that no message uses the caller's
// memory. One thread at a time. `runtime` must outlive it.
class MpiCollective final : public Collective {
 public:
  // Member i is rank ranks[i] of the world; `me` is this process's place. Collectives with a common
  // rank have different ids.
  struct Options {
    int id = 0;
    std::vector<int> ranks;
    int me = 0;
    Duration limit{};
    Duration busy_poll{};
    size_t ahead_bytes = 0;
  };
  MpiCollective(MpiRuntime& runtime, Options options)
      : runtime_(runtime), options_(std::move(options)) {}

  int rank() const override { return options_.me; }
  int size() const override { return static_cast<int>(options_.ranks.size()); }

  Status AllGather(const CollectiveRows& rows, std::span<const size_t> ends) override;
  Status GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) override;
  Status AllReduce(std::span<float> values) override;
  Status BroadcastFromFirst(std::span<std::byte> bytes) override;
  // Send returns when at most bytes_ahead() bytes wait for the receivers.
  Status Send(int to, std::span<const std::byte> bytes) override;
  Status Receive(int from, std::span<std::byte> bytes) override;
  size_t bytes_ahead() const override { return options_.ahead_bytes; }

 private:
  // Part of the tag, so that a message of another kind of call is never taken.
  enum class Kind { kAllGather, kGather, kAllReduce, kBroadcast, kSend };

  void AddSend(int to);  // of all bytes of buffers_->out
  void AddReceive(int from, std::span<std::byte> bytes);
  MpiWait WaitOf(Kind kind) const;
  Status Run(Kind kind);
  void ReserveOut(size_t bytes) { buffers_->out.resize(bytes); }
  void ReserveIn(size_t bytes) { buffers_->in.resize(bytes); }
  std::span<std::byte> in(size_t offset, size_t bytes) {
    return std::span(buffers_->in).subspan(offset, bytes);
  }

  MpiRuntime& runtime_;
  const Options options_;
  std::shared_ptr<MpiBuffers> buffers_ = std::make_shared<MpiBuffers>();
  std::vector<MpiMessage> messages_;
};

}  // namespace baton

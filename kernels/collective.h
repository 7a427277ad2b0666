#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// Rows of equal size in host memory, which the ranks of a group exchange.
struct CollectiveRows {
  std::byte* data = nullptr;
  int64_t count = 0;
  size_t stride = 0;  // bytes from the start of one row to the start of the next
};

// How the ranks of one group exchange host memory. Every rank of the group must make the same calls
// in the same order with the same sizes. Every wait is bounded. Errors of all calls:
// DeadlineExceeded names the rank that did not come in time; Unavailable names the rank that is
// gone and the reason. After an error the group is broken and every later call fails, on every
// rank. One thread at a time.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Rank r has written bytes ends[r - 1] … ends[r] - 1 of each row (from 0 on for rank 0; `ends`
  // has one entry per rank, ascending). Afterwards every rank has bytes 0 … ends.back() - 1.
  virtual Status AllGather(const CollectiveRows& rows, std::span<const size_t> ends) = 0;
  // The same, but only rank 0 has all bytes afterwards.
  virtual Status GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) = 0;
  // Replaces `values` on every rank by the sum over all ranks, which begins with the value of rank
  // 0 and is added in the order of the ranks: every rank has the same bits, and −0 adds nothing.
  virtual Status AllReduce(std::span<float> values) = 0;
  // Rank 0's `bytes` on every rank.
  virtual Status BroadcastFromFirst(std::span<std::byte> bytes) = 0;
  // One rank sends, the other receives the same number of bytes. Send may return before the other
  // rank has received.
  virtual Status Send(int to, std::span<const std::byte> bytes) = 0;
  virtual Status Receive(int from, std::span<std::byte> bytes) = 0;
  // The bytes of one Send that does not wait for the other rank, when that rank has received
  // everything before.
  virtual size_t bytes_ahead() const = 0;

  // OK while no rank has broken the group; then the error that all calls return. Does not wait. Any
  // thread.
  virtual Status status() const { return OkStatus(); }
};

// The groups in which one rank computes. Null: the rank is the only one in that direction.
struct RankGroups {
  Collective* tensor = nullptr;    // the ranks that hold the other slices of the same layers
  Collective* pipeline = nullptr;  // the ranks that hold other layers; the rank is the stage
  // The longest time in which a device may finish a step, waits for other ranks included.
  Duration limit = std::chrono::seconds(60);
};

}  // namespace baton

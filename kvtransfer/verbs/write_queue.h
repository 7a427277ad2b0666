#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kvtransfer/transport.h"
#include "kvtransfer/verbs/queue_pair.h"

namespace baton {

// The copies of one queue pair, in order: cuts their runs into RDMA WRITEs, gathers runs that
// continue each other in the peer's memory into one write, posts as many as the queue pair takes,
// and finds out which copies have ended. Only the last write of a copy and one write out of a few
// have a completion. Owned by a VerbsCopier; its thread only.
class WriteQueue final {
 public:
  struct Memories {
    const std::byte* source = nullptr;
    uint32_t local_key = 0;
    uint64_t peer_address = 0;
    uint32_t peer_key = 0;
  };

  // `index`: of the queue pair in its channel, for marks. `depth`: its number of send requests.
  // `sources`: the ranges of memory that one request may gather, 1 to kMaxWriteSources.
  WriteQueue(uint32_t index, uint32_t depth, uint32_t sources = 1)
      : index_(index), depth_(depth), sources_(sources) {}

  // Appends a copy; returns its mark.
  uint32_t Push(uint64_t id, std::span<const WriteRun> runs);
  // Posts writes until the queue pair is full or no write is left. An error: the queue pair must be
  // destroyed.
  Status Post(QueuePair& queue_pair, const Memories& memories);
  // The completion of the request with this wr_id: appends the ids of copies that ended to `ended`.
  void OnCompletion(uint64_t request, std::vector<uint64_t>& ended);
  // Removes all copies, and appends their ids to `ids`.
  void TakeAll(std::vector<uint64_t>& ids);

  // Bytes of copies that have not ended.
  uint64_t bytes() const { return bytes_; }
  bool is_empty() const { return waiting_.empty() && posted_.empty(); }

 private:
  struct Copy {
    uint64_t id = 0;
    std::vector<WriteRun> runs;
    uint64_t bytes = 0;
    uint32_t mark = 0;
    uint64_t last_request = 0;  // once it is posted
  };
  // A list of requests as libibverbs takes it.
  struct Batch;
  // Appends the next write to the batch.
  void Append(Batch& batch, const Memories& memories);
  // Sets the sources and the destination of a write of the first waiting copy, and goes on to the
  // runs behind them.
  void TakeRuns(ibv_send_wr& request, std::span<ibv_sge> sources, const Memories& memories);

  const uint32_t index_;
  const uint32_t depth_;
  const uint32_t sources_;
  std::deque<Copy> waiting_;  // the first one may be posted in part
  size_t run_ = 0;            // of waiting_.front(): the next run and the offset in it
  uint64_t offset_ = 0;
  std::deque<Copy> posted_;
  uint32_t next_number_ = 1;
  uint64_t requests_ = 0;   // posted
  uint64_t completed_ = 0;  // known to have completed
  uint64_t bytes_ = 0;
};

}  // namespace baton

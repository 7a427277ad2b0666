#include "kvtransfer/verbs/write_queue.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kvtransfer/verbs/write_mark.h"

namespace baton {
namespace {

// The largest RDMA WRITE. Larger writes are no faster, and let other queue pairs wait longer.
constexpr uint64_t kMaxWriteBytes = uint64_t{256} << 10;
// The number of requests that are posted with one call.
constexpr size_t kBatch = 32;
// One request out of this fraction of the queue has a completion, so that the queue is refilled in
// time.
constexpr uint32_t kSignalsPerQueue = 4;

}  // namespace

struct WriteQueue::Batch {
  std::array<ibv_send_wr, kBatch> requests{};
  std::array<std::array<ibv_sge, kMaxWriteSources>, kBatch> sources{};
  size_t count = 0;
};

uint32_t WriteQueue::Push(uint64_t id, std::span<const WriteRun> runs) {
  Copy copy;
  copy.id = id;
  copy.runs.assign(runs.begin(), runs.end());
  for (const WriteRun& run : runs) copy.bytes += run.bytes;
  copy.mark = MarkOf(index_, next_number_++);
  bytes_ += copy.bytes;
  waiting_.push_back(std::move(copy));
  return waiting_.back().mark;
}

void WriteQueue::TakeRuns(ibv_send_wr& request,
                          std::span<ibv_sge> sources,
                          const Memories& memories) {
  const Copy& copy = waiting_.front();
  if (run_ == copy.runs.size()) return;
  request.sg_list = sources.data();
  request.wr.rdma.remote_addr += copy.runs[run_].destination + offset_;
  uint64_t bytes = 0;
  uint64_t end = copy.runs[run_].destination + offset_;
  while (run_ < copy.runs.size() && bytes < kMaxWriteBytes &&
         static_cast<uint32_t>(request.num_sge) < sources_ &&
         copy.runs[run_].destination + offset_ == end) {
    const WriteRun& run = copy.runs[run_];
    ibv_sge& source = sources[static_cast<size_t>(request.num_sge++)];
    source.addr = reinterpret_cast<uintptr_t>(memories.source) + run.source + offset_;
    source.length = static_cast<uint32_t>(std::min(run.bytes - offset_, kMaxWriteBytes - bytes));
    source.lkey = memories.local_key;
    bytes += source.length;
    end += source.length;
    offset_ += source.length;
    if (offset_ < run.bytes) break;
    ++run_;
    offset_ = 0;
  }
}

void WriteQueue::Append(Batch& batch, const Memories& memories) {
  Copy& copy = waiting_.front();
  ibv_send_wr& request = batch.requests[batch.count];
  request = {};
  request.wr_id = ++requests_;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = memories.peer_address;
  request.wr.rdma.rkey = memories.peer_key;
  if (requests_ % std::max(depth_ / kSignalsPerQueue, 1u) == 0) {
    request.send_flags = IBV_SEND_SIGNALED;
  }
  TakeRuns(request, batch.sources[batch.count], memories);
  if (batch.count > 0) batch.requests[batch.count - 1].next = &request;
  ++batch.count;
  if (run_ < copy.runs.size()) return;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(copy.mark);
  request.send_flags = IBV_SEND_SIGNALED;
  copy.last_request = requests_;
  posted_.push_back(std::move(copy));
  waiting_.pop_front();
  run_ = 0;
}

Status WriteQueue::Post(QueuePair& queue_pair, const Memories& memories) {
  while (!waiting_.empty() && requests_ - completed_ < depth_) {
    Batch batch;
    while (!waiting_.empty() && requests_ - completed_ < depth_ && batch.count < kBatch) {
      Append(batch, memories);
    }
    BATON_RETURN_IF_ERROR(queue_pair.PostSends(batch.requests.data()));
  }
  return OkStatus();
}

void WriteQueue::OnCompletion(uint64_t request, std::vector<uint64_t>& ended) {
  completed_ = std::max(completed_, request);
  for (; !posted_.empty() && posted_.front().last_request <= completed_; posted_.pop_front()) {
    bytes_ -= posted_.front().bytes;
    ended.push_back(posted_.front().id);
  }
}

void WriteQueue::TakeAll(std::vector<uint64_t>& ids) {
  for (const std::deque<Copy>* copies : {&posted_, &waiting_}) {
    for (const Copy& copy : *copies) ids.push_back(copy.id);
  }
  posted_.clear();
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace baton

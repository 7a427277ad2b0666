#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/unique_fd.h"
#include "kernels/dma.h"
#include "kvtransfer/one_sided/copier.h"
#include "kvtransfer/verbs/rail_queues.h"
#include "kvtransfer/verbs/verbs_socket.h"
#include "kvtransfer/verbs/write_queue.h"

namespace baton {

// Copies with RDMA WRITE over the queue pairs of one channel. Each copy goes over one queue pair,
// the one with the fewest bytes left, and ends with a write with immediate data, which carries the
// copy's mark. When a queue pair fails, all are destroyed: the ends of their copies are then not
// known, and the peer must revoke the access. Contract, owner and thread: Copier.
class VerbsCopier final : public Copier {
 public:
  struct Source {
    const Buffer* buffer = nullptr;
    std::vector<uint32_t> local_keys;  // of the rails in use
  };

  // `source` must outlive the copier. `checksums` computes the checksums of its bytes. `socket` is
  // the channel's; the copier uses it until Connect returns.
  static StatusOr<std::unique_ptr<Copier>> Create(std::span<const RailQueues::RailUse> rails,
                                                  Source source,
                                                  std::unique_ptr<DmaQueue> checksums,
                                                  VerbsSocket& socket);
  ~VerbsCopier() override;

  // A Handshake.
  std::string Greeting() const override;
  // `access`: the Handshake of the peer's VerbsAccess.
  Status Connect(std::string_view access) override;
  bool marks_copies() const override { return true; }
  uint64_t peer_bytes() const override { return peer_bytes_; }
  StatusOr<uint32_t> Copy(uint64_t id, std::span<const WriteRun> runs) override;
  Status Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) override;
  // Destroys the queue pairs. Copies under way end with an error.
  void Fence() override;
  size_t Poll(std::span<DmaDone> done) override;
  int wait_fd() const override { return epoll_.get(); }
  void WatchEnds() override;

 private:
  VerbsCopier(Source source,
              VerbsSocket& socket,
              QueuePairAddress messages,
              std::unique_ptr<RailQueues> queues,
              std::unique_ptr<DmaQueue> checksums,
              UniqueFd epoll,
              UniqueFd ended);

  void TakeCompletions();
  // Ends all copies with an error, as soon as the queue pairs are destroyed.
  void Break(const Status& reason);
  void BreakOff();
  // Makes wait_fd() readable if copies have ended that Poll has not returned.
  void Signal();

  const Source source_;
  VerbsSocket& socket_;
  const QueuePairAddress messages_;  // this end's queue pair for frames
  const UniqueFd epoll_;             // watches `ended_`, the completion queues and the checksums
  const UniqueFd ended_;
  std::unique_ptr<RailQueues> queues_;
  std::vector<WriteQueue> writes_;  // by queue pair
  std::vector<WriteQueue::Memories> memories_;
  uint64_t peer_bytes_ = 0;
  std::unique_ptr<DmaQueue> checksums_;
  std::deque<DmaDone> done_;
  bool is_signalled_ = false;
  Status broken_;  // the reason once a queue pair has failed
};

}  // namespace baton

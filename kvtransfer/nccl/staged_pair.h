#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "kernels/dma.h"
#include "kernels/pair_exchange.h"
#include "kvtransfer/nccl/aborted_pairs.h"

namespace baton {

// The staging memory of one end of a channel: 192 MiB of GPU memory. NCCL takes some 60 us to issue
// a send or a receive, and each one pauses the link. The bytes of a buffer take about 150 us on
// NVLink. Both ends need three buffers to keep the link busy: one whose bytes move, one whose bytes
// are copied, and one that waits.
constexpr size_t kNcclBuffers = 4;
constexpr size_t kNcclBufferBytes = size_t{48} << 20;

// What all pairs of a transport use. It outlives the pairs.
struct PairDevice {
  Dma* dma = nullptr;
  PairExchange* exchange = nullptr;
  AbortedPairs* aborted = nullptr;
};

// One end of a channel of "nccl": a communicator, its staging memory cut into buffers, the copies
// between these buffers and the KV memory, and the watchdog. The peer's bytes never reach the KV
// memory by themselves. Owned by a channel or a connection; its thread only. The destructor waits
// for this process's own copies, never for the peer or an abort.
class StagedPair final {
 public:
  struct Options {
    std::string pair_id;
    std::string peer;  // in messages
    bool sends = false;
    Duration connect_timeout{};
    Duration stall_timeout{};
    int epoll_fd = -1;  // the transport's
  };

  // `memory`, the KV memory, outlives the result. Errors: those of Dma::MakeQueue and
  // PairExchange::Make.
  static StatusOr<std::unique_ptr<StagedPair>> Create(const PairDevice& device,
                                                      const Buffer& memory,
                                                      Options options);
  ~StagedPair();
  StagedPair(const StagedPair&) = delete;

  // The number of a free buffer, which is not free any more; -1: there is none.
  int TakeBuffer();
  void FreeBuffer(int buffer) { taken_[static_cast<size_t>(buffer)] = false; }

  // Start a copy of ranges of the KV memory into the buffer, one after the other, or of the buffer
  // into the ranges. PollCopies returns `id`.
  Status Gather(uint64_t id, int buffer, std::span<const ByteRange> ranges);
  Status Scatter(uint64_t id, int buffer, std::span<const ByteRange> ranges);
  // Starts to compute the checksums of ranges of the KV memory. PollCopies returns `id`.
  Status Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule);
  size_t PollCopies(std::span<DmaDone> done) { return queue_->Poll(done); }

  // Sends the first `bytes` bytes of the buffer, or receives them, after all earlier exchanges.
  Status Exchange(int buffer, uint64_t bytes);
  // The number of exchanges that ended since the last call, in their order. Errors: Unavailable
  // with the communicator's reason, when the ends have not connected in time, or when the exchanges
  // under way have made no progress for the stall time-out.
  StatusOr<size_t> PollExchanges(Time now);
  // The fence: no exchange goes on. Calls of Exchange and PollExchanges may not follow.
  void Abort();

  // Must be called before waiting for the transport's epoll instance.
  void WatchEnds();

 private:
  StagedPair(const Buffer& memory,
             AbortedPairs& aborted,
             Options options,
             std::unique_ptr<DmaQueue> queue,
             std::unique_ptr<PairCommunicator> communicator);
  Status CheckProgress(Time now);

  const Buffer& memory_;
  AbortedPairs& aborted_;
  const Options options_;
  std::vector<bool> taken_;  // by buffer
  size_t under_way_ = 0;     // exchanges
  Time connect_until_{};
  Time moved_{};  // the last progress of the exchanges; zero: none is under way
  bool is_aborted_ = false;
  std::unique_ptr<PairCommunicator> communicator_;
  std::unique_ptr<DmaQueue> queue_;
};

}  // namespace baton

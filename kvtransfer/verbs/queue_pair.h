#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kvtransfer/verbs/rail.h"

namespace baton {

// A completion queue with its channel for notifications. Owned by one end of a channel; its thread
// only.
class CompletionQueue final {
 public:
  // `entries`: the most completions that can be outstanding.
  static StatusOr<std::unique_ptr<CompletionQueue>> Create(const Rail& rail, uint32_t entries);

  // Moves completions into `completions`; returns their number. Unavailable: the queue is broken.
  StatusOr<size_t> Poll(std::span<ibv_wc> completions);
  // Makes fd() readable when the next completion comes. True: completions that came before need a
  // Poll afterwards. False: it was armed already, and fd() is readable if any came since.
  bool Arm();
  // Makes fd() unreadable until the next notification.
  void TakeNotifications();
  int fd() const { return channel_->fd; }
  ibv_cq* get() const { return queue_.get(); }

 private:
  CompletionQueue(const VerbsLibrary& verbs,
                  VerbsPtr<ibv_comp_channel> channel,
                  VerbsPtr<ibv_cq> queue)
      : verbs_(verbs), channel_(std::move(channel)), queue_(std::move(queue)) {}

  const VerbsLibrary& verbs_;
  VerbsPtr<ibv_comp_channel> channel_;
  VerbsPtr<ibv_cq> queue_;
  bool is_armed_ = false;  // a notification may come, or has come and was not taken
};

// A reliable connected (RC) queue pair: one end of a connection between two rails. Owned by one end
// of a channel; its thread only. It must not outlive its completion queue.
class QueuePair final {
 public:
  struct Options {
    uint32_t sends = 1;
    uint32_t receives = 1;
    uint32_t sources = 1;      // ranges of memory of one request
    bool is_writable = false;  // the peer may write through it
  };
  static StatusOr<std::unique_ptr<QueuePair>> Create(const Rail& rail,
                                                     const CompletionQueue& completions,
                                                     const Options& options);
  ~QueuePair();

  // What the peer's Connect needs.
  QueuePairAddress address() const { return {queue_pair_->qp_num, psn_}; }
  // Connects to a queue pair of the peer: writes of the peer are accepted from now on. With
  // `sends`, this end may send too.
  Status Connect(const PortAddress& port, const QueuePairAddress& peer, bool sends);

  // Posts a list of requests. After an error, the number of posted requests is not known.
  Status PostSends(ibv_send_wr* first);
  // Posts `count` receive requests, which have no memory: a write with immediate data consumes one.
  Status PostReceives(uint32_t count);
  // Posts a list of receive requests. After an error, the number of posted requests is not known.
  Status PostReceives(ibv_recv_wr* first);

  // Stops the queue pair. True: it is destroyed, so that none of its requests reads local memory
  // any more, and no byte of its peer can land any more. False: the device refuses; try again.
  bool Destroy();

 private:
  QueuePair(const Rail& rail, ibv_qp* queue_pair);
  Status Modify(ibv_qp_attr& attributes, int mask, const char* state);

  const Rail& rail_;
  ibv_qp* queue_pair_;  // null once it is destroyed
  const uint32_t psn_;
};

}  // namespace baton

#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/verbs/handshake.h"
#include "kvtransfer/verbs/queue_pair.h"

namespace baton {

// The queue pairs of one end of a channel: some on each of its rails, with one completion queue a
// rail. Queue pairs are numbered across rails, in the order of the rails. Owned by one end of a
// channel; its thread only.
class RailQueues final {
 public:
  struct Options {
    uint32_t sends = 1;  // of one queue pair
    uint32_t receives = 1;
    bool is_writable = false;
  };
  struct RailUse {
    uint16_t index = 0;  // of the rail
    Rail* rail = nullptr;
    uint32_t queue_pairs = 1;
  };

  static StatusOr<std::unique_ptr<RailQueues>> Create(std::span<const RailUse> rails,
                                                      const Options& options);

  // This end's rails and queue pairs, for the handshake. `rkeys` gives the key of each of them, or
  // is empty.
  std::vector<RailAddress> Addresses(std::span<const uint32_t> rkeys) const;
  // Connects to the peer's queue pairs. InvalidArgument unless the peer has the same rails with as
  // many queue pairs each; the message states both.
  Status Connect(std::span<const RailAddress> peer, bool sends);

  size_t size() const { return queue_pairs_.size(); }
  QueuePair& queue_pair(size_t index) { return *queue_pairs_[index].pair; }
  // The position in `rails` (of Create) of a queue pair's rail.
  size_t rail_of(size_t index) const { return queue_pairs_[index].rail; }
  Rail& rail(size_t position) { return *rails_[position].use.rail; }

  // Takes completions of any rail: calls `take` with the index of the queue pair and each
  // completion. An error: a completion queue is broken.
  template <class Take>
  Status Poll(Take take) {
    std::array<ibv_wc, 16> completions;
    for (const RailState& rail : rails_) {
      size_t count = 0;
      do {
        BATON_ASSIGN_OR_RETURN(count, rail.completions->Poll(completions));
        for (const ibv_wc& completion : std::span(completions).first(count)) {
          take(IndexOf(rail, completion.qp_num), completion);
        }
      } while (count == completions.size());
    }
    return OkStatus();
  }
  // Makes wait_fd() readable when the next completion comes. True: a Poll must follow.
  bool Arm();
  // Makes wait_fd() unreadable until the next notification.
  void TakeNotifications();
  // Readable after Arm and a completion. Constant.
  int wait_fd() const { return epoll_.get(); }

  // Destroys all queue pairs, as QueuePair::Destroy. False: some of them remain.
  bool Destroy();

 private:
  struct RailState {
    RailUse use;
    std::unique_ptr<CompletionQueue> completions;
    size_t first = 0;  // index of its first queue pair
  };
  struct NumberedPair {
    size_t rail = 0;
    uint32_t number = 0;  // ibv_qp::qp_num
    std::unique_ptr<QueuePair> pair;
  };
  explicit RailQueues(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  size_t IndexOf(const RailState& rail, uint32_t number) const;

  const UniqueFd epoll_;  // watches the completion queues
  std::vector<RailState> rails_;
  std::vector<NumberedPair> queue_pairs_;  // destroyed before rails_
};

}  // namespace baton

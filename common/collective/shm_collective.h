#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/collective/collective_options.h"
#include "common/collective/group_memory.h"
#include "kernels/collective.h"

namespace baton {

// A collective of ranks on one host, over slots in shared memory.
//
// The calls of all members run in rounds. In a round each member that has bytes writes at most one
// slot, then stores the slot's turn word; readers poll that word and copy the bytes. A member
// enters a round only after all others have entered the round before. Therefore all have left the
// round two before, whose slots this round overwrites, and no acknowledgement is needed. Send and
// Receive use the slots of the pair, and the receiver acknowledges each chunk.
//
// A waiting member busy-polls, then sleeps on its doorbell, in which it states for whom it waits.
// That member rings the doorbell after its store. A wait ends at once when the group is aborted.
// A call of another kind or size on another rank is found and aborts the group.
//
// One thread at a time. GroupMemory must outlive it.
class ShmCollective final : public Collective {
 public:
  // The collective layout().collectives[index] of `memory`, for `rank` of the group.
  // InvalidArgument when `rank` is not one of its ranks; FailedPrecondition when the rank's place
  // was taken before.
  static StatusOr<std::unique_ptr<ShmCollective>> Create(GroupMemory& memory,
                                                         size_t index,
                                                         int rank,
                                                         const CollectiveOptions& options);

  int rank() const override { return me_; }
  int size() const override { return area_.members(); }

  Status AllGather(const CollectiveRows& rows, std::span<const size_t> ends) override;
  Status GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) override;
  // Every member reads the values of all others: meant for small sums and few ranks.
  Status AllReduce(std::span<float> values) override;
  Status BroadcastFromFirst(std::span<std::byte> bytes) override;
  // Send returns when at most two slots of bytes wait for the receiver.
  Status Send(int to, std::span<const std::byte> bytes) override;
  Status Receive(int from, std::span<std::byte> bytes) override;
  size_t bytes_ahead() const override { return 2 * area_.slot_bytes(); }
  Status status() const override { return memory_.abort_status(); }

 private:
  enum class Kind : uint32_t { kAllGather, kGather, kAllReduce, kBroadcast, kSend };

  ShmCollective(GroupMemory& memory, size_t index, int me, const CollectiveOptions& options);

  static uint32_t CallWord(Kind kind, std::span<const size_t> sizes);
  static std::string CallName(uint32_t call);

  // Runs `rounds` rounds. fill(round, slot bytes) writes this member's bytes; then drain(round,
  // member, slot bytes) copies those of each member of `sources`, in that order.
  template <class Fill, class Drain>
  Status RunRounds(uint32_t call,
                   size_t rounds,
                   std::span<const int> sources,
                   const Fill& fill,
                   const Drain& drain);
  Status Gather(Kind kind,
                const CollectiveRows& rows,
                std::span<const size_t> ends,
                std::span<const int> sources);
  Status EnterRound();
  void Publish(Slot slot, uint32_t turn, uint32_t call);
  Status CheckCall(int source, uint32_t found, uint32_t expected);
  void RingIfWaiting(int member);

  // Waits until `word`, which only `source` advances, reaches `value`.
  Status Wait(int source, uint32_t& word, uint32_t value);
  Status WaitLonger(int source, uint32_t& word, uint32_t value);
  Status TooLate(int source);
  int RankOf(int member) const;

  GroupMemory& memory_;
  const size_t index_;
  const ExchangeArea area_;
  const int me_;
  const Duration limit_;
  const Duration busy_poll_;
  uint32_t round_ = 0;              // the next round
  std::vector<uint32_t> entered_;   // by member: the rounds that it is known to have entered
  std::vector<uint32_t> sent_;      // chunks, by receiver
  std::vector<uint32_t> received_;  // chunks, by sender
  std::vector<int> others_;         // all other members, from the next one on
  std::vector<int> everyone_;       // all members in order
};

}  // namespace baton

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/exchange/peer_kernels.h"
#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/sums/peer_parts.h"

namespace baton::cuda {

// Memory on each rank's device into which the other ranks push elements, over NVLink or PCIe. The
// memory has a slot for each other rank. Slots need no flags: an empty slot holds kEmptySlot in
// every word, and a kernel polls the elements themselves and then empties the slot. TensorRT-LLM
// and FlashInfer call this the Lamport protocol. One thread, except Abort.
//
// Each rank has two slot buffers, between which consecutive exchanges alternate. All ranks run the
// same exchanges in the same order, each rank on one stream. In every exchange each rank receives
// at least one word from each other rank. A rank that has received this word knows that the sender
// has finished the previous exchange and has emptied the slots of that exchange. So the next
// exchange can use those slots again.
//
// An exchange fills and empties each word of a slot at most once. So one slot buffer suffices for
// both phases of a two-shot sum: a slot holds a slice of the parts, then a slice of the sums. The
// slices of a two-shot sum must not be empty, so that each rank receives a word from each other
// rank.
//
// Each rank also has put buffers, into which the copy engines of the other ranks write rows
// (PutOp). PutOps use the put buffers in turn. The ranks exchange flags through the slots after the
// copies of a PutOp, which tells each rank that its put buffer is full. A rank must read a put
// buffer before its third next PutOp: the flags of that PutOp allow the other ranks to overwrite
// the buffer with their fourth. The scales of FP8 rows have memory of their own, one scale for each
// row of a step, and follow the rules of the put buffer that holds the rows.
class PeerSlots final {
 public:
  static constexpr int kSlotBuffers = 2;
  static constexpr int kPutBuffers = 4;
  static constexpr int64_t kMaxScales = int64_t{64} << 10;

  // Allocates slots on the current device of each rank of `host`, and gives the ranks access to
  // each other's slots. A rank may destroy its slots when the other ranks have ended their last
  // exchange. Errors: Unavailable with more than kMaxPeerRanks ranks; those of PeerMemory::Create.
  static StatusOr<std::unique_ptr<PeerSlots>> Create(Collective& host);

  // The size of a slot: the maximum that a rank pushes to another rank in one exchange.
  size_t slot_bytes() const { return slot_bytes_; }
  // The size of a put buffer.
  size_t put_buffer_bytes() const { return put_buffer_bytes_; }
  // A put buffer of this rank; `index` is less than kPutBuffers.
  std::byte* PutBuffer(int index) const { return memory_->own() + PutBufferOffset(index); }
  // Memory for kMaxScales scales, after the put buffers.
  float* Scales() const { return reinterpret_cast<float*>(PutBuffer(kPutBuffers)); }
  // Translates an address in this rank's memory to the same offset in the memory of `rank`, as
  // nvshmem_ptr does.
  std::byte* PeerAddress(int rank, std::byte* own) const {
    return memory_->peer(rank) + (own - memory_->own());
  }
  // The slots that this rank fills, in the memory of the other ranks; by rank, without this rank.
  PeerTargets Targets(int slot_buffer) const;
  // The slots that the other ranks fill, in this rank's memory.
  PeerParts Parts(int slot_buffer) const;
  // Ends the waits of all kernels on this rank's device. Any thread.
  void Abort() const { memory_->Abort(); }

 private:
  static constexpr size_t kGaveUpBytes = 256;  // for PeerParts::gave_up

  PeerSlots(int rank, int ranks);
  size_t SlotBufferBytes() const { return slot_bytes_ * static_cast<size_t>(ranks_ - 1); }
  size_t PutBufferOffset(int index) const {
    return kSlotBuffers * SlotBufferBytes() + kGaveUpBytes +
           static_cast<size_t>(index) * put_buffer_bytes_;
  }

  const int rank_;
  const int ranks_;
  const size_t slot_bytes_;
  const size_t put_buffer_bytes_;
  // [kSlotBuffers][ranks − 1][slot_bytes], then PeerParts::gave_up, then
  // [kPutBuffers][put_buffer_bytes], then the scales.
  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace baton::cuda

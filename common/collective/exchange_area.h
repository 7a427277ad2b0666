#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

inline constexpr size_t kCacheLine = 64;

// Words in shared memory are plain integers that every access treats as atomic. Sequential
// consistency, because a sleeping rank and the rank that wakes it each store one word and then load
// the other's. A store of `turn` or `received` also releases what was written to, or read from, a
// slot before it, and the load that sees the word acquires it (docs/memory_ordering.md).
inline uint32_t LoadWord(const uint32_t& word) {
  return std::atomic_ref(const_cast<uint32_t&>(word)).load(std::memory_order_seq_cst);
}
inline void StoreWord(uint32_t& word, uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_seq_cst);
}

// Where a member of a collective sleeps.
struct alignas(kCacheLine) Doorbell {
  uint32_t event = 0;        // the futex: whoever wakes the member increments it
  uint32_t waiting_for = 0;  // the member for which this one waits, plus 1; 0: it does not wait
  uint32_t opened = 0;       // 1 after a process took the member's place
};

// What precedes the bytes of a slot.
struct alignas(kCacheLine) SlotHead {
  uint32_t turn = 0;  // 1 + the number of the round or chunk whose bytes the slot holds
  uint32_t call = 0;  // what the writer calls, so that the reader sees a mismatch
};

struct Slot {
  SlotHead& head;
  std::span<std::byte> bytes;
};

// The shared memory of one collective: a doorbell of each member, two slots of each member for the
// calls of all members, and two slots of each pair for Send and Receive. All-zero bytes are a new
// area. A view: the memory belongs to GroupMemory. What each word means, and who writes it, is the
// protocol of ShmCollective.
class ExchangeArea final {
 public:
  // The bytes that an area needs.
  static size_t Bytes(int members, size_t slot_bytes);

  // `data` is aligned to a cache line.
  ExchangeArea(std::byte* data, int members, size_t slot_bytes);

  int members() const { return members_; }
  size_t slot_bytes() const { return slot_bytes_; }

  Doorbell& doorbell(int member) const;
  // The slot in which `member` writes in rounds of the parity of `round`.
  Slot slot(int member, uint32_t round) const;
  // The slot in which `from` writes the chunks of the parity of `chunk` for `to`.
  Slot pair_slot(int from, int to, uint32_t chunk) const;
  // The number of chunks from `from` that `to` has copied. `to` writes it.
  uint32_t& received(int from, int to) const;

  // Wakes `member` wherever it sleeps in this area.
  void Ring(int member) const;

 private:
  size_t Pair(int from, int to) const { return static_cast<size_t>(from) * members_ + to; }
  Slot SlotAt(std::byte* slots, size_t index) const;

  std::byte* doorbells_;
  std::byte* received_;
  std::byte* slots_;
  std::byte* pair_slots_;
  int members_;
  size_t slot_bytes_;
};

}  // namespace baton

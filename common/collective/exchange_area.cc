#include "common/collective/exchange_area.h"

#include "common/base/futex.h"

namespace baton {
namespace {

size_t SlotStride(size_t slot_bytes) {
  return sizeof(SlotHead) + (slot_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

size_t ExchangeArea::Bytes(int members, size_t slot_bytes) {
  const auto count = static_cast<size_t>(members);
  return count * sizeof(Doorbell) + count * count * kCacheLine +
         2 * (count + count * count) * SlotStride(slot_bytes);
}

ExchangeArea::ExchangeArea(std::byte* data, int members, size_t slot_bytes)
    : members_(members), slot_bytes_(slot_bytes) {
  const auto count = static_cast<size_t>(members);
  doorbells_ = data;
  received_ = doorbells_ + count * sizeof(Doorbell);
  slots_ = received_ + count * count * kCacheLine;
  pair_slots_ = slots_ + 2 * count * SlotStride(slot_bytes);
}

Doorbell& ExchangeArea::doorbell(int member) const {
  return reinterpret_cast<Doorbell*>(doorbells_)[member];
}

Slot ExchangeArea::SlotAt(std::byte* slots, size_t index) const {
  std::byte* const place = slots + index * SlotStride(slot_bytes_);
  return {.head = *reinterpret_cast<SlotHead*>(place),
          .bytes = {place + sizeof(SlotHead), slot_bytes_}};
}

Slot ExchangeArea::slot(int member, uint32_t round) const {
  return SlotAt(slots_, static_cast<size_t>(member) * 2 + round % 2);
}

Slot ExchangeArea::pair_slot(int from, int to, uint32_t chunk) const {
  return SlotAt(pair_slots_, Pair(from, to) * 2 + chunk % 2);
}

uint32_t& ExchangeArea::received(int from, int to) const {
  return *reinterpret_cast<uint32_t*>(received_ + Pair(from, to) * kCacheLine);
}

void ExchangeArea::Ring(int member) const {
  uint32_t& event = doorbell(member).event;
  std::atomic_ref(event).fetch_add(1, std::memory_order_seq_cst);
  FutexWake(event);
}

}  // namespace baton

#pragma once

#include <cstdint>

// The mark of a copy over verbs, which its last RDMA WRITE carries as immediate data: 8 bits for
// the index of the queue pair in the channel, 24 bits for the number of the copy on this queue
// pair. The writes of one queue pair land in order, so a mark also proves all earlier copies.
namespace baton {

constexpr uint32_t kMaxMarkNumber = (1u << 24) - 1;

constexpr uint32_t MarkOf(uint32_t queue_pair, uint32_t number) {
  return queue_pair << 24 | (number & kMaxMarkNumber);
}
constexpr uint32_t QueuePairOf(uint32_t mark) {
  return mark >> 24;
}
constexpr uint32_t NumberOf(uint32_t mark) {
  return mark & kMaxMarkNumber;
}
// Whether copy `number` landed, when `landed` is the latest number that landed. Numbers wrap
// around; at most 2^23 copies are under way.
constexpr bool IsReached(uint32_t landed, uint32_t number) {
  return ((landed - number) & kMaxMarkNumber) <= kMaxMarkNumber / 2;
}

}  // namespace baton

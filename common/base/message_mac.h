#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

using MacTag = std::array<uint8_t, 16>;

// Computes the tags that prove the messages of one direction of a connection. Both ends count the
// messages, and the number of a message is part of its tag. So a message that was changed, left
// out, repeated or moved does not have the tag that its receiver expects. Not thread-safe.
class MessageMac {
 public:
  virtual ~MessageMac() = default;

  // The next bytes of the current message.
  virtual void Update(std::span<const std::byte> bytes) = 0;
  // Returns the tag of the current message, and begins the next message.
  virtual MacTag Finish() = 0;
};

// Compares in a time that does not depend on the content.
inline bool SameTag(const MacTag& a, const MacTag& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace baton

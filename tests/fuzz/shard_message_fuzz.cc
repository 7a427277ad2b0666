// What the data planes of a worker's ranks on several hosts tell each other. The parsers must not
// crash, and an accepted message must encode to bytes that decode and encode to the same again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "kvtransfer/group/shard_messages.h"

namespace {

template <class Message, class Decode>
void Check(std::string_view bytes, const Decode& decode) {
  const baton::StatusOr<Message> message = decode(bytes);
  if (!message.ok()) return;
  const std::string encoded = baton::Encode(*message);
  const baton::StatusOr<Message> again = decode(encoded);
  BATON_CHECK(again.ok() && baton::Encode(*again) == encoded, "the message encodes to other bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Check<baton::ShardCommand>(bytes, baton::DecodeShardCommand);
  Check<baton::ShardEvent>(bytes, baton::DecodeShardEvent);
  return 0;
}

#include "common/rpc/closing_streams.h"

#include "common/base/check.h"

namespace baton {
namespace {

// gRPC ends a closed stream at once; this bound is far longer than it ever takes.
constexpr Duration kEndLimit = std::chrono::seconds(60);

}  // namespace

void ClosingStreams::Collect() {
  std::erase_if(streams_, [](const Entry& entry) { return entry.await_closed(Duration::zero()); });
}

void ClosingStreams::AwaitAll() {
  for (const Entry& entry : streams_) {
    const bool ended = entry.await_closed(kEndLimit);
    BATON_CHECK(ended, "the stream to {} did not end after it was closed", entry.peer);
  }
  streams_.clear();
}

}  // namespace baton

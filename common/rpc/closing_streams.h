#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace baton {

// Keeps the streams that a dialler gave up until gRPC does not use them any more. A dialler must
// keep its stream that long, but its thread must not wait, because that thread has other work.
// Owned and used by the thread of the dialler, which is thereby the thread that destroys the
// streams and their channels.
class ClosingStreams final {
 public:
  ClosingStreams() = default;
  ~ClosingStreams() { AwaitAll(); }
  ClosingStreams(const ClosingStreams&) = delete;
  ClosingStreams& operator=(const ClosingStreams&) = delete;

  // Takes a ClientStream that has ended or that the caller has closed. `peer`: for error messages.
  template <class Stream>
  void Add(std::string peer, std::shared_ptr<Stream> stream) {
    streams_.push_back({std::move(peer), [stream = std::move(stream)](Duration timeout) {
                          return stream->AwaitClosed(timeout);
                        }});
  }
  // Drops the streams that have ended. Never waits.
  void Collect();
  // Waits until every stream has ended, and drops all of them. For the shutdown only.
  void AwaitAll();

  size_t size() const { return streams_.size(); }

 private:
  struct Entry {
    std::string peer;
    std::function<bool(Duration)> await_closed;  // owns the stream
  };

  std::vector<Entry> streams_;
};

}  // namespace baton

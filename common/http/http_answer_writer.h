#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton {

struct HttpAnswerHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // each value is one line
  // Of an answer that is given at once; absent when the answer is a stream, or has status 204.
  std::optional<size_t> body_bytes;
  bool streamed = false;
  bool has_body = true;  // false for an answer to HEAD, and with status 204
};

// Why an answer ends before it is complete.
enum class HttpAbort { kFailed, kReadTooSlowly };

// Sends the answer to one request in the form of the connection's protocol. Owned by the exchange.
// Keeps the connection alive. Callable from any thread, by one thread at a time.
class HttpAnswerWriter {
 public:
  virtual ~HttpAnswerWriter() = default;

  // Queues `bytes` of the body; the first call has the head. `last`: the answer is complete.
  virtual void Send(std::optional<HttpAnswerHead> head, std::string bytes, bool last) = 0;
  // Whether so few bytes are queued that `bytes` more are within the limit.
  virtual bool HasRoom(size_t bytes) const = 0;
  // Ends an answer that cannot be completed, so that the client notices.
  virtual void Abort(HttpAbort why) = 0;
};

}  // namespace baton

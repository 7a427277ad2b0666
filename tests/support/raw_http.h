#pragma once

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace baton {

// A TCP connection for tests: sends what it is told, reads with a bound. All failures show as empty
// or absent results.
class RawConnection final {
 public:
  // `address`: "127.0.0.1:port". `source`: the client's own address, of 127.0.0.0/8.
  explicit RawConnection(const std::string& address, const std::string& source = "127.0.0.1");

  bool connected() const { return fd_.valid(); }
  bool Send(const std::string& bytes);
  // Reads until `marker` is in what was received so far, the peer closes, or the limit passes.
  // Returns all received since the last call.
  std::string ReadUntil(const std::string& marker, Duration limit = std::chrono::seconds(10));
  // All bytes until the peer closes; nothing when it did not within the limit.
  std::optional<std::string> ReadToEnd(Duration limit = std::chrono::seconds(10));
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  // True when bytes came, false when the peer closed; nothing at the limit.
  std::optional<bool> ReadSome(Time deadline, std::string& into);

  UniqueFd fd_;
};

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

// One GET on a connection of its own.
HttpAnswer HttpGet(const std::string& address, const std::string& path);
// Sends `request` as it is (with "Connection: close") and parses the answer.
HttpAnswer HttpSend(const std::string& address,
                    const std::string& request,
                    Duration limit = std::chrono::seconds(10));

}  // namespace baton

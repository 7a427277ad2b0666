#pragma once

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace baton {

// A TCP connection for tests. It sends raw bytes, and every read has a time limit. A failure gives
// an empty or absent result.
class RawConnection final {
 public:
  // `address`: "127.0.0.1:port". `source`: the client's own address; empty: the system's choice.
  explicit RawConnection(const std::string& address, const std::string& source = "");

  bool connected() const { return fd_.valid(); }
  bool Send(const std::string& bytes);
  // Reads until the received bytes contain `marker`, the peer closes, or the limit passes. Returns
  // the bytes received since the last call.
  std::string ReadUntil(const std::string& marker, Duration limit = std::chrono::seconds(10));
  // All bytes until the peer closes; nullopt when the peer does not close within the limit.
  std::optional<std::string> ReadToEnd(Duration limit = std::chrono::seconds(10));
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  // True when bytes arrived, false when the peer closed, nullopt when the deadline passed.
  std::optional<bool> ReadSome(Time deadline, std::string& into);

  UniqueFd fd_;
};

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

// Sends one GET on a new connection.
HttpAnswer HttpGet(const std::string& address, const std::string& path);
// The text of a POST, for HttpSend. `headers`: further lines, each with its line end.
std::string PostRequest(const std::string& path,
                        const std::string& body,
                        const std::string& headers = "");
// Sends `request` unchanged and parses the answer. `request` must contain "Connection: close".
HttpAnswer HttpSend(const std::string& address,
                    const std::string& request,
                    Duration limit = std::chrono::seconds(10));

}  // namespace baton

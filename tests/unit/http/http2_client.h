#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "tests/support/raw_http.h"

struct nghttp2_session;

namespace baton {

// A client of HTTP/2 for tests, with one connection. It receives and sends only within its methods.
class Http2Client final {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  struct Options {
    uint32_t window = 65535;  // bytes of each answer that may come before the client allows more
    bool allows_more = true;  // the client allows more as it receives
  };
  struct Answer {
    int status = 0;
    std::vector<int> interim;  // statuses below 200
    std::map<std::string, std::string> headers;
    std::string body;
    bool ended = false;
    std::optional<uint32_t> reset;  // the error code of a stream that was not closed in good order
  };
  struct Request {
    std::string method = "GET";
    std::string path = "/hello";
    std::string body = {};
    Headers headers = {};
    bool ends = true;  // false: the body never ends
  };

  explicit Http2Client(const std::string& address);
  Http2Client(const std::string& address, const Options& options);
  ~Http2Client();

  // Sends a request, and returns its stream.
  int32_t Send(const Request& request);
  int32_t Get(const std::string& path) { return Send({.path = path}); }
  int32_t Post(const std::string& path, std::string body) {
    return Send({.method = "POST", .path = path, .body = std::move(body)});
  }
  void Reset(int32_t stream);
  // Allows `bytes` more of an answer, or of all together (stream 0).
  void Allow(int32_t stream, int32_t bytes);

  // Receives until `done`. False when the connection ends or the limit passes before.
  bool Await(const std::function<bool()>& done, Duration limit = std::chrono::seconds(20));
  // The whole answer.
  const Answer& Await(int32_t stream);
  bool AwaitEnd() {
    return !Await([] { return false; }) && closed_;
  }
  Answer& answer(int32_t stream) { return answers_[stream]; }
  // The error code of the server's GOAWAY.
  const std::optional<uint32_t>& goaway() const { return goaway_; }
  void Close() { connection_.Close(); }
  int fd() const { return connection_.fd(); }

 private:
  friend struct ClientCallbacks;
  struct FreeSession {
    void operator()(nghttp2_session* session) const;
  };
  struct Upload {
    std::string rest;
    bool ends = true;
  };

  void SendWaiting();

  RawConnection connection_;
  std::unique_ptr<nghttp2_session, FreeSession> session_;
  std::map<int32_t, Answer> answers_;
  std::map<int32_t, Upload> uploads_;
  std::optional<uint32_t> goaway_;
  bool closed_ = false;
};

}  // namespace baton

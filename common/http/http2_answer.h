#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/http/http_answer_writer.h"
#include "common/http/http_connection.h"
#include "common/http/http_limits.h"

namespace baton {

class Http2Session;

// Sends the answer of a stream of HTTP/2.
class Http2Answer final : public HttpAnswerWriter {
 public:
  // `session` is the connection's. `unsent` is Http2Stream::unsent of the stream.
  Http2Answer(std::shared_ptr<HttpConnection> connection,
              Http2Session& session,
              int32_t stream,
              std::shared_ptr<UnsentBytes> unsent);

  void Send(std::optional<HttpAnswerHead> head, std::string bytes, bool last) override;
  bool HasRoom(size_t bytes) const override;
  // Resets the stream. The others of the connection go on.
  void Abort(HttpAbort why) override;

 private:
  const std::shared_ptr<HttpConnection> connection_;
  Http2Session& session_;
  const int32_t stream_;
  const std::shared_ptr<UnsentBytes> unsent_;
};

}  // namespace baton

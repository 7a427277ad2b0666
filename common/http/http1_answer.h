#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/http/http_answer_writer.h"
#include "common/http/http_connection.h"

namespace baton {

class Http1Session;

// Writes the answer to a request of an HTTP/1 connection.
class Http1Answer final : public HttpAnswerWriter {
 public:
  // `session` is the connection's.
  Http1Answer(std::shared_ptr<HttpConnection> connection, Http1Session& session, bool keep_alive);

  void Send(std::optional<HttpAnswerHead> head, std::string bytes, bool last) override;
  bool HasRoom(size_t bytes) const override;
  // Closes the connection.
  void Abort(HttpAbort why) override;

 private:
  std::string HeadText(const HttpAnswerHead& head) const;

  const std::shared_ptr<HttpConnection> connection_;
  Http1Session& session_;
  const bool keep_alive_;
  bool chunked_ = false;
};

}  // namespace baton

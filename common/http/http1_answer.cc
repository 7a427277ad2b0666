#include "common/http/http1_answer.h"

#include <utility>

#include <boost/beast/http/status.hpp>
#include <fmt/format.h>

#include "common/http/http1_session.h"

namespace baton {
namespace {

namespace http = boost::beast::http;

std::string ReasonOf(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

}  // namespace

Http1Answer::Http1Answer(std::shared_ptr<HttpConnection> connection,
                         Http1Session& session,
                         bool keep_alive)
    : connection_(std::move(connection)), session_(session), keep_alive_(keep_alive) {}

std::string Http1Answer::HeadText(const HttpAnswerHead& head) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, ReasonOf(head.status));
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive_) text += "Connection: close\r\n";
  if (head.streamed) text += "Transfer-Encoding: chunked\r\n";
  if (head.body_bytes.has_value()) text += fmt::format("Content-Length: {}\r\n", *head.body_bytes);
  return text + "\r\n";
}

void Http1Answer::Send(std::optional<HttpAnswerHead> head, std::string bytes, bool last) {
  std::string text;
  if (head.has_value()) {
    text = HeadText(*head);
    chunked_ = head->streamed && head->has_body;
  }
  if (!chunked_) {
    text += bytes;
  } else {
    if (!bytes.empty()) text += fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
    if (last) text += "0\r\n\r\n";
  }
  session_.unsent().Add(text.size());
  connection_->Post(
      [connection = connection_,
       session = &session_,
       text = std::move(text),
       last,
       keep_alive = keep_alive_]() mutable { session->Send(std::move(text), last, keep_alive); });
}

bool Http1Answer::HasRoom(size_t bytes) const {
  return session_.unsent().count() + bytes <= connection_->options().max_unsent_bytes;
}

void Http1Answer::Abort(HttpAbort) {
  connection_->Post([connection = connection_] { connection->Close(); });
}

}  // namespace baton

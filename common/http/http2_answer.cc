#include "common/http/http2_answer.h"

#include <utility>

#include "common/http/http2_session.h"

namespace baton {

Http2Answer::Http2Answer(std::shared_ptr<HttpConnection> connection,
                         Http2Session& session,
                         int32_t stream,
                         std::shared_ptr<UnsentBytes> unsent)
    : connection_(std::move(connection)),
      session_(session),
      stream_(stream),
      unsent_(std::move(unsent)) {}

void Http2Answer::Send(std::optional<HttpAnswerHead> head, std::string bytes, bool last) {
  unsent_->Add(bytes.size());
  connection_->Post([connection = connection_,
                     session = &session_,
                     stream = stream_,
                     head = std::move(head),
                     bytes = std::move(bytes),
                     last]() mutable { session->Send(stream, head, std::move(bytes), last); });
}

bool Http2Answer::HasRoom(size_t bytes) const {
  return unsent_->count() + bytes <= connection_->options().max_unsent_bytes;
}

void Http2Answer::Abort(HttpAbort why) {
  connection_->Post([connection = connection_, session = &session_, stream = stream_, why] {
    session->Abort(stream, why);
  });
}

}  // namespace baton

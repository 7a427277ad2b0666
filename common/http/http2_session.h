#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/http/http2_codec.h"
#include "common/http/http2_events.h"
#include "common/http/http2_stream.h"
#include "common/http/http_answer_writer.h"
#include "common/http/http_connection.h"
#include "common/http/http_limits.h"
#include "common/http/http_session.h"

namespace baton {

// HTTP/2 on a connection: up to 100 requests at a time, each with an exchange. The limits of a
// request are those of HTTP/1. A request that exceeds a limit gets its answer and leaves the others
// alone; a client that floods the connection with frames loses it. Owned by the connection. Used on
// the io thread.
class Http2Session final : public HttpSession, private Http2Events {
 public:
  explicit Http2Session(HttpConnection& connection);
  ~Http2Session() override;

  void Start() override;
  void OnRead(boost::system::error_code error) override;
  void OnWriteBegins() override;
  void OnWritten(size_t bytes, bool all) override;
  void OnTimeout() override;
  void OnClosed() override;
  void Drain() override;
  void Stop() override;
  bool is_idle() const override { return streams_.empty(); }

  // Sends the head of a stream's answer, if present, and bytes of its body after those before.
  void Send(int32_t id, const std::optional<HttpAnswerHead>& head, std::string bytes, bool last);
  // Resets a stream whose answer cannot be completed.
  void Abort(int32_t id, HttpAbort why);

 private:
  using Streams = std::unordered_map<int32_t, std::unique_ptr<Http2Stream>>;

  void OnRequestBegins(int32_t id) override;
  void OnHeader(int32_t id, std::string_view name, std::string_view value) override;
  void OnHeaderEnds(int32_t id, bool too_large) override;
  void OnBody(int32_t id, std::string_view bytes) override;
  void OnRequestEnds(int32_t id) override;
  void OnStreamClosed(int32_t id) override;
  size_t TakeAnswer(int32_t id, std::span<uint8_t> into, bool& last) override;

  HttpShared& shared() { return *connection_.shared(); }
  Http2Stream* Find(int32_t id);
  void Receive();
  // Serves the requests that have become complete, and drops those that the client has reset.
  void HandleChanges();
  // Counts and logs why the connection ends, once.
  void NoteFailure();
  void Advance(int32_t id, Http2Stream& stream);
  // Handles a complete header. False when it has already been answered.
  bool OnHead(int32_t id, Http2Stream& stream);
  const ConnectionSlots::Slot& TakeSlot(int32_t id, Http2Stream& stream);
  std::shared_ptr<ConnectionExchange> MakeExchange(int32_t id, Http2Stream& stream);
  void Refuse(int32_t id, Http2Stream& stream, const HttpRefusal& refusal);
  // Tells the exchange that the client will not receive more.
  void Drop(Http2Stream& stream);
  void Reset(int32_t id, HttpAbort why);
  // Writes what there is to be written, unless a write is in progress, and ends a connection that
  // is over.
  void Flush();
  void Read();
  // Has OnTimeout called at `deadline`, if no earlier call is due.
  void Await(Time deadline);
  void OnStreamLate(int32_t id, Http2Stream& stream);

  HttpConnection& connection_;
  ByteBudget bodies_;  // of requests of this connection that wait for an answer
  Http2Codec codec_;
  Streams streams_;
  int32_t slot_owner_ = 0;        // the stream that has the connection's slot; 0: none
  std::vector<int32_t> changed_;  // streams that have received something
  std::vector<std::unique_ptr<Http2Stream>> closed_;
  bool read_is_paused_ = false;
  bool draining_ = false;
  bool stopping_ = false;
  bool ended_ = false;  // the connection lingers or is closed
  bool failure_is_noted_ = false;
  Time idle_deadline_ = kNever;   // while there is no stream
  Time write_deadline_ = kNever;  // while a write is in progress
  Time next_timeout_ = kNever;
};

}  // namespace baton

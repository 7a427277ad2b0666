#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "common/http/http_limits.h"
#include "common/http/http_session.h"
#include "common/http/http_shared.h"
#include "common/http/http_stream.h"

namespace baton {

// The connection of one client: its bytes, its time limit and its end. What the bytes mean is the
// matter of its session, whose protocol the handshake or the first bytes choose. All methods run on
// the io thread unless their comment says otherwise. Pending operations and the exchanges keep the
// connection alive.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared,
                 std::unique_ptr<HttpStream> stream,
                 ConnectionSlots::Slot slot);
  ~HttpConnection();

  // Does the stream's handshake, chooses the protocol, and lets its session read the first request.
  void Start();
  void Close();
  // Tells the client, where the protocol can, to send further requests on another connection.
  void Drain();
  // Closes the connection, soon after the client was told so where the protocol can.
  void Stop();
  // True while no request is being served, so that the connection can be closed for another one
  // without loss.
  bool is_dispensable() const;
  // False when the client would not understand an answer of HTTP/1 without encryption.
  bool reads_plain_http1() const;

  HttpStream& stream() { return *stream_; }
  const ConnectionSlots::Slot& slot() const { return slot_; }
  const std::shared_ptr<HttpShared>& shared() const { return shared_; }
  const HttpServerOptions& options() const { return shared_->options; }

  // Runs `work` on the io thread, in the order of the calls; drops it when the connection is
  // closed. Any thread.
  void Post(std::function<void()> work);

  // The methods below are for the session.

  // The bytes that have been read and not consumed.
  boost::beast::flat_buffer& input() { return input_; }
  // Reads at most `bytes` more, unless a read is in progress.
  void Read(size_t bytes);
  // Queues bytes to be written after those before.
  void Write(std::string bytes);
  bool is_writing() const { return writing_ > 0; }
  // Calls the session's OnTimeout after `limit`, instead of any time that was set before.
  void Arm(Duration limit);
  void Disarm() { deadline_ = kNever; }
  // A request has passed the gate, or the connection is closed: it is no stranger any more.
  void EndStranger();
  // Sends the end, and closes when the client has had time to read the answer, because a TCP reset
  // would discard it. `limit` is that time.
  void Linger(Duration limit);
  static constexpr Duration kLingerTime = std::chrono::seconds(2);
  // Of a client that floods the server.
  static constexpr Duration kFloodLingerTime = std::chrono::milliseconds(250);

 private:
  enum class Phase { kHandshake, kProtocol, kServe, kLinger, kClosed };

  void OnHandshake(boost::system::error_code error);
  void OnRead(boost::system::error_code error, size_t bytes);
  // Chooses the session by the first bytes of a connection without encryption.
  void ChooseProtocol();
  void ServeHttp1();
  void ServeHttp2();
  void WriteNext();
  void OnWritten(boost::system::error_code error);
  void Discard();
  void AwaitDeadline();
  void OnTimeout();

  std::shared_ptr<HttpShared> shared_;
  ConnectionSlots::Slot slot_;
  const std::unique_ptr<HttpStream> stream_;
  Time deadline_ = kNever;  // of OnTimeout
  // Wakes at deadline_ or before it: most deadlines of a request are replaced long before they
  // pass, and setting a timer for each would cost more than the wake-ups that find nothing.
  boost::asio::steady_timer timer_;
  bool waiting_ = false;  // for timer_
  Phase phase_ = Phase::kHandshake;
  bool is_http2_ = false;
  std::optional<std::list<std::weak_ptr<HttpConnection>>::iterator> stranger_;

  boost::beast::flat_buffer input_;
  bool reading_ = false;  // a read is in progress
  std::deque<std::string> output_;
  size_t writing_ = 0;  // number of elements of output_, from the first, that are being written
  std::unique_ptr<HttpSession> session_;
  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace baton

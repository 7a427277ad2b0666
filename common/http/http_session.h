#pragma once

#include <cstddef>

#include <boost/system/error_code.hpp>

namespace baton {

// The protocol that a connection speaks: HTTP/1 or HTTP/2. Owned by the connection, which calls all
// methods on the io thread, and none but OnClosed after it was closed.
class HttpSession {
 public:
  virtual ~HttpSession() = default;

  // Called once, after the handshake. The connection's input may already have bytes.
  virtual void Start() = 0;
  // A read has ended; its bytes are in the connection's input.
  virtual void OnRead(boost::system::error_code error) = 0;
  virtual void OnWriteBegins() = 0;
  // The system has accepted `bytes`. `all`: nothing is left to be written.
  virtual void OnWritten(size_t bytes, bool all) = 0;
  // The time of HttpConnection::Arm is over.
  virtual void OnTimeout() = 0;
  // The connection is closed: tells the exchanges.
  virtual void OnClosed() = 0;

  // Tells the client, where the protocol can, to send further requests on another connection.
  virtual void Drain() = 0;
  // Closes the connection soon, and tells the client so where the protocol can.
  virtual void Stop() = 0;
  // True while no request is being served, so that the connection can be closed without loss.
  virtual bool is_idle() const = 0;
};

}  // namespace baton

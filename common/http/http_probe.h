#pragma once

#include <string_view>

#include "common/metrics/metrics.h"

namespace baton {

// All metrics of a process' HTTP server. Thread-safe.
class HttpProbe final {
 public:
  explicit HttpProbe(MetricsRegistry& registry);

  void SetConnections(int count) { connections_.Set(count); }
  // Counts an exception of a handler or of the io thread.
  void OnException() { exceptions_.Add(); }
  // Counts a connection whose TLS handshake failed.
  void OnFailedHandshake() { failed_handshakes_.Add(); }
  // Counts a connection without a valid request that was closed for a new connection.
  void OnEvicted() { evicted_.Add(); }
  // Counts a request that the server itself refused with `status`, or a connection that it closed
  // for want of slots (503).
  void OnRefused(int status);
  // Counts an HTTP/2 connection that ends because of what the client did (Http2Codec::failure).
  void OnHttp2Failure(std::string_view reason);

 private:
  MetricsRegistry& registry_;
  Gauge connections_;
  Counter exceptions_;
  Counter failed_handshakes_;
  Counter evicted_;
};

}  // namespace baton

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/metrics/metrics.h"

namespace baton {

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0 takes a free one
  int handler_threads = 2;
  // Connections over these two limits get 503, but for probes.
  int max_connections = 8192;
  int max_connections_per_address = 4096;
  int reserved_connections = 64;  // over the limits; the oldest gives way to the next
  size_t max_header_bytes = size_t{64} << 10;
  size_t max_body_bytes = size_t{8} << 20;            // as sent: a chunked body's framing counts
  size_t max_waiting_body_bytes = size_t{256} << 20;  // of all requests without an answer yet
  size_t max_unsent_bytes = size_t{4} << 20;  // of one stream; a client slower than that is dropped
  Duration header_timeout = std::chrono::seconds(10);  // to send a request's header
  Duration body_timeout = std::chrono::seconds(60);    // to send its body
  Duration idle_timeout = std::chrono::seconds(60);    // between requests
  Duration write_timeout = std::chrono::seconds(30);   // for one write to be taken
  MetricsRegistry* metrics = nullptr;                  // outlives the server; null: nothing counts
};

struct HttpRequest {
  std::string id;                              // x-request-id, of the client or made here
  std::string method;                          // "GET", "POST", …
  std::string path;                            // without the query, percent-decoding not applied
  std::string query;                           // after '?', or empty
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // until Reply or Begin, which free it
  std::string client;                          // the address that sent it, without its port

  // The header's value, or empty. `name` in lower case.
  std::string_view header(const std::string& name) const;
};

// The answer to one request, in the hands of its handler: either one Reply, or Begin, any number of
// Writes and Finish. It may be kept and used after the handler returned, from any thread. When the
// last reference goes without an answer the client gets 500, or a cut stream.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // Headers to send besides those that every answer has; before Reply or Begin.
  virtual void AddHeader(std::string name, std::string value) = 0;
  virtual void Reply(int status, std::string content_type, std::string body) = 0;

  // Starts a chunked answer (server-sent events: "text/event-stream"). The head is sent together
  // with the first Write, or with Finish.
  virtual void Begin(int status, std::string content_type) = 0;
  // Queues bytes of the stream; never blocks. False once the client is gone or too slow: then stop.
  virtual bool Write(std::string bytes) = 0;
  virtual void Finish() = 0;

  // Calls `callback` once, on some thread, if the client goes away before Finish or Reply; at once
  // if it is gone already.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

// An HTTP/1.1 server for answers, streams and probes: keep-alive, bounded in connections, sizes and
// time. Its own errors are JSON in the shape of the OpenAI API. No TLS. Handlers run on a small
// pool of threads and may block it shortly; what takes longer keeps the exchange and answers later.
// A handler's exception is answered with 500, logged and counted. Thread-safe.
class HttpServer final {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  // Listens and answers at once (404 until routes are added). Errors: InvalidArgument for a bad
  // address, Unavailable naming the address when it cannot be bound.
  static StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options);
  ~HttpServer();

  // Serves `method path`, exactly; a path that ends in "/*" serves all below it. GET serves HEAD,
  // too, and every path OPTIONS. A handler must stay callable until Stop() returned.
  void AddRoute(const std::string& method, const std::string& path, Handler handler);

  // A GET that is answered even when clients use up all connections and handler threads.
  void AddProbe(const std::string& path, Handler handler);

  // "host:port" with the port really taken.
  const std::string& address() const;

  // Closes all connections, waits for running handlers. Exchanges still held turn inert.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

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

struct HttpRequest {
  std::string id;                              // x-request-id of the client, or a new id
  std::string method;                          // "GET", "POST", …
  std::string path;                            // without the query, percent-decoding not applied
  std::string query;                           // after '?', or empty
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // Reply and Begin free it
  std::string client;  // the client's address without the port, or what HttpVerdict says
  // The common name in the client's certificate, which the handshake has verified; empty: none.
  std::string certificate;

  // The value of the header `name` (in lower case), or empty.
  std::string_view header(const std::string& name) const;
};

// Whether a request may be served. Decided when its header is complete, before its body is read.
struct HttpVerdict {
  int status = 0;             // of the refusal; 0: the request is served
  std::string message;        // of the refusal
  std::string challenge;      // of a refusal with 401: the value of WWW-Authenticate
  std::string client;         // who asks, for HttpRequest::client; empty: known by the address only
  bool open = false;          // served to everyone, so that the request proves nothing
  size_t max_body_bytes = 0;  // of this request, if less than the server's limit; 0: no other limit
};
// Called on the io thread, so it must be quick. Must be thread-safe.
using HttpGate = std::function<HttpVerdict(const HttpRequest& request)>;

class HttpStreams;  // http_stream.h

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; for port 0 the system chooses a free port
  int handler_threads = 2;
  // When a limit is reached, the oldest connection without a request that passed the gate is closed
  // for the new one. When there is none, the new connection can only request probes; other requests
  // are answered with 503. A request of HTTP/2 beside others of its connection counts as a
  // connection.
  int max_connections = 8192;
  int max_connections_per_address = 4096;
  int reserved_connections = 64;  // over these limits; when all are in use, the oldest is closed
  size_t max_header_bytes = size_t{64} << 10;
  size_t max_body_bytes = size_t{8} << 20;            // a chunked body counts with its framing
  size_t max_waiting_body_bytes = size_t{256} << 20;  // of all requests without an answer yet
  size_t max_unsent_bytes = size_t{4} << 20;          // of a stream; a slower client loses it
  // Of all answers. While clients have not read as much, other requests are answered with 503.
  size_t max_unsent_bytes_in_all = size_t{512} << 20;
  Duration header_timeout = std::chrono::seconds(10);  // for a request's header
  Duration body_timeout = std::chrono::seconds(60);    // for a request's body
  Duration idle_timeout = std::chrono::seconds(60);    // between requests
  Duration write_timeout = std::chrono::seconds(30);   // for one write to be accepted
  MetricsRegistry* metrics = nullptr;                  // outlives the server; null: no metrics
  // Until SetStarted, anything but probes is answered with 503, also what has no route yet.
  bool starting = false;
  HttpGate gate = nullptr;                         // empty: every request is served
  std::shared_ptr<HttpStreams> streams = nullptr;  // of the connections; null: no encryption
};

// The answer to one request, which its handler gives: either one Reply, or Begin, any number of
// Writes and Finish. The exchange may be kept and used after the handler has returned, from any
// thread. When the last reference is dropped before the answer is complete, the client gets 500, or
// its connection is closed if a stream has begun.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // Adds a header to those that every answer has. To be called before Reply or Begin.
  virtual void AddHeader(std::string name, std::string value) = 0;
  virtual void Reply(int status, std::string content_type, std::string body) = 0;

  // Starts a chunked answer (server-sent events: "text/event-stream"). The head is sent together
  // with the first Write, or with Finish.
  virtual void Begin(int status, std::string content_type) = 0;
  // Queues bytes of the stream; never blocks. False when the client has disconnected or reads too
  // slowly; the handler should then stop.
  virtual bool Write(std::string bytes) = 0;
  // Ends the stream with these bytes, which may be empty. They are sent together with the end.
  virtual void Finish(std::string bytes) = 0;

  // Calls `callback` once, on any thread, if the client disconnects before Finish or Reply; at once
  // if it has already disconnected.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

// A server of HTTP/1.1 and HTTP/2 for answers, streams and probes, with limits of connections,
// sizes and time. The client chooses the protocol: by ALPN, or without encryption by its first
// bytes. Errors of the server itself are JSON in the shape of the OpenAI API. Handlers run on a
// small pool of threads, or where their route says, and may block a thread for a short time; a
// handler that needs longer keeps the exchange and answers later. A handler's exception is answered
// with 500, logged and counted. Thread-safe.
class HttpServer final {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;
  // Decides which thread calls a handler: runs `job`, later and on a thread that it may block for a
  // short time, or answers the exchange itself. Called on the io thread, so it must be quick.
  using Runner =
      std::function<void(const std::shared_ptr<HttpExchange>& exchange, std::function<void()> job)>;

  // Listens and answers from now on (with 404, or 503 while it starts, until routes are added).
  // Errors: InvalidArgument for a bad address, Unavailable that names the address when it cannot be
  // bound.
  static StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options);
  ~HttpServer();

  // Serves exactly `method path`; a path that ends in "/*" serves all paths below it. A route for
  // GET serves HEAD, too; every path serves OPTIONS. A handler must stay callable until Stop() has
  // returned. `run`: absent, the server's own pool of threads calls the handler.
  void AddRoute(const std::string& method,
                const std::string& path,
                Handler handler,
                Runner run = nullptr);

  // Serves GET on `path` even when clients use all connections and handler threads.
  void AddProbe(const std::string& path, Handler handler);

  // All routes are there (HttpServerOptions::starting).
  void SetStarted();

  // "host:port" with the actual port.
  const std::string& address() const;

  // Tells the clients of HTTP/2 to send further requests on new connections. The requests in
  // progress go on. From now on a new connection serves one request and is then told the same, so
  // that clients which connect anew reach another server soon.
  void Drain();

  // Closes all connections and waits for running handlers. Exchanges that are still held do nothing
  // any more.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

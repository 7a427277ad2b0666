#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/http/http_limits.h"
#include "common/http/http_probe.h"
#include "common/http/http_routes.h"
#include "common/http/http_server.h"

namespace baton {

class HttpConnection;

// State that the connections of a server share. Lives as long as any connection or exchange.
struct HttpShared {
  explicit HttpShared(const HttpServerOptions& options_in);

  const HttpServerOptions options;
  MetricsRegistry own_metrics;  // used when the options have no registry
  HttpProbe probe;
  ConnectionSlots slots;
  ByteBudget waiting_bodies;
  std::atomic<size_t> unsent_bytes{0};  // of all answers
  HttpRoutes routes;
  boost::asio::io_context io{1};
  boost::asio::thread_pool handlers;
  boost::asio::thread_pool probe_handlers{1};
  // Connections in ordinary slots none of whose requests has passed the gate, the oldest first.
  // Used on the io thread.
  std::list<std::weak_ptr<HttpConnection>> strangers;
  std::atomic<bool> starting;  // see HttpServerOptions
  bool draining = false;       // HttpServer::Drain was called. Used on the io thread.
  std::mutex mutex;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> open;  // guarded by mutex
};

}  // namespace baton

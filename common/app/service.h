#pragma once

#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace baton {

// What a process gives to its service. All of it outlives the service.
struct AppContext {
  MetricsRegistry& metrics;
  HttpServer& http;  // serves /metrics, /healthz, /readyz; a service may add routes
  const Clock& clock;
};

// What a process runs: a router or a worker. Made by its Start function, driven by RunService.
// Methods are called from the process' main threads: Ready and Failure from any thread, Stop also
// during Drain. The destructor comes after Stop and after the HTTP server stopped.
class Service {
 public:
  virtual ~Service() = default;

  // OK when requests can be served; else Unavailable saying what is missing. Answers /readyz.
  virtual Status Ready() const = 0;

  // OK while it can go on. An error, which then stays, says why it cannot: the process stops it and
  // exits with status 1.
  virtual Status Failure() const { return OkStatus(); }

  // True when it has done what it was asked to and nothing is left to do: the process stops it and
  // exits with status 0.
  virtual bool Finished() const { return false; }

  // name → "host:port" of each port it opened ("grpc", "workers", "kv", …), as really taken.
  virtual std::map<std::string, std::string> addresses() const = 0;

  // Takes no more requests and returns when those running have ended, or after `limit`.
  virtual void Drain(Duration limit) = 0;

  // Ends everything now, within a second or so; a Drain in progress returns early.
  virtual void Stop() = 0;
};

}  // namespace baton

#pragma once

#include <map>
#include <string>

#include "common/app/process_security.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace baton {

// The objects that a process provides to its service. All of them outlive the service.
struct AppContext {
  MetricsRegistry& metrics;
  HttpServer& http;  // serves /metrics, /healthz and /readyz; a service may add routes
  const Clock& clock;
  const ProcessSecurity& security;
};

// A router or a worker, as the object that a process runs. Its Start function makes it; RunService
// drives it. Ready and Failure may be called from any thread. Drain runs on its own thread, and
// Stop may be called during Drain. The destructor runs after Stop and after the HTTP server's stop.
class Service {
 public:
  virtual ~Service() = default;

  // OK when requests can be served, else Unavailable that names what is missing. The answer of
  // /readyz.
  virtual Status Ready() const = 0;

  // OK while the service can go on. An error is final and states why the service cannot go on; the
  // process then stops the service and exits with status 1.
  virtual Status Failure() const { return OkStatus(); }

  // True when the service has finished its task; the process then stops it and exits with status 0.
  virtual bool Finished() const { return false; }

  // name → "host:port" of each port that the service opened ("grpc", "workers", "kv", …), with the
  // actual port.
  virtual std::map<std::string, std::string> addresses() const = 0;

  // Accepts no more requests. Returns when the running requests have ended, or after `limit`.
  virtual void Drain(Duration limit) = 0;

  // Ends all requests and threads within about 1 s. A Drain in progress returns early.
  virtual void Stop() = 0;
};

}  // namespace baton

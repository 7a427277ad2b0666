#pragma once

#include <functional>

#include "common/base/status.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace baton {

// Adds probes: /metrics (Prometheus text), /healthz and /health (200 while the process runs), and
// /readyz (200 when `ready` returns OK, else 503 with its message). `metrics` and the objects that
// `ready` uses must live until the server has stopped.
void AddAdminEndpoints(HttpServer& server, MetricsRegistry& metrics, std::function<Status()> ready);

}  // namespace baton

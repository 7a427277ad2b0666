#include "common/app/admin_endpoints.h"

#include <string>
#include <utility>

namespace baton {

void AddAdminEndpoints(HttpServer& server,
                       MetricsRegistry& metrics,
                       std::function<Status()> ready) {
  server.AddProbe("/metrics", [&metrics](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, "text/plain; version=0.0.4; charset=utf-8", metrics.Serialize());
  });
  for (const char* path : {"/healthz", "/health"}) {
    server.AddProbe(path, [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Reply(200, "text/plain", "ok\n");
    });
  }
  server.AddProbe("/readyz",
                  [ready = std::move(ready)](const std::shared_ptr<HttpExchange>& exchange) {
                    const Status status = ready();
                    if (status.ok()) {
                      exchange->Reply(200, "text/plain", "ready\n");
                    } else {
                      exchange->Reply(503, "text/plain", std::string(Message(status)) + "\n");
                    }
                  });
}

}  // namespace baton

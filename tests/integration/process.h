#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/app/service.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace baton {

// Runs one of Baton's services inside a test or a benchmark, as RunService does in a process, but
// without signals. Aborts when the service does not start.
class InProcess final {
 public:
  // `overrides`: "path.to.field=value".
  template <class Config>
  InProcess(StatusOr<std::unique_ptr<Service>> (*start)(const Config&, AppContext&),
            std::vector<std::string> overrides) {
    Config config;
    ConfigSources sources;
    sources.overrides = std::move(overrides);
    const Status loaded = LoadConfig(sources, config);
    BATON_CHECK(loaded.ok(), "{}", Message(loaded));
    auto security = ProcessSecurity::Open(config.security(), metrics_);
    BATON_CHECK(security.ok(), "{}", Message(security.status()));
    security_ = *std::move(security);
    HttpServerOptions options;
    options.metrics = &metrics_;
    options.gate = security_->MakeHttpGate(options.listen);
    options.streams = security_->http_streams();
    http_ = *HttpServer::Start(options);
    context_.emplace(AppContext{metrics_, *http_, clock_, *security_});
    StatusOr<std::unique_ptr<Service>> service = start(config, *context_);
    BATON_CHECK(service.ok(), "{}", Message(service.status()));
    service_ = *std::move(service);
  }
  ~InProcess() { Stop(); }

  void Stop() {
    if (service_ == nullptr) return;
    service_->Stop();
    http_->Stop();
    service_.reset();
  }

  Service& service() { return *service_; }
  const std::string& http() const { return http_->address(); }
  std::string address(const std::string& name) { return service_->addresses().at(name); }

  // The value of an unlabelled metric; -1 when the metric is absent.
  double Metric(const std::string& name) {
    const std::string text = "\n" + metrics_.Serialize();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

 private:
  SteadyClock clock_;
  MetricsRegistry metrics_;
  std::unique_ptr<ProcessSecurity> security_;
  std::unique_ptr<HttpServer> http_;
  std::optional<AppContext> context_;
  std::unique_ptr<Service> service_;
};

}  // namespace baton

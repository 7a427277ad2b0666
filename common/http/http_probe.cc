#include "common/http/http_probe.h"

#include <string>

namespace baton {

HttpProbe::HttpProbe(MetricsRegistry& registry)
    : registry_(registry),
      connections_(registry.AddGauge("baton_http_connections", "Open HTTP connections.")),
      exceptions_(
          registry.AddCounter("baton_http_exceptions_total",
                              "Exceptions in HTTP handlers (answered with status 500) and on "
                              "the server's own thread.")),
      failed_handshakes_(registry.AddCounter(
          "baton_http_failed_tls_handshakes_total",
          "HTTP connections whose TLS handshake failed, for example plain HTTP on a TLS port.")),
      evicted_(registry.AddCounter("baton_http_evicted_total",
                                   "HTTP connections without a valid request that were closed for "
                                   "new ones, because a limit of connections was reached.")) {}

void HttpProbe::OnRefused(int status) {
  registry_
      .AddCounter("baton_http_refused_total",
                  "HTTP requests that the server refused without a handler, by status.",
                  {{"status", std::to_string(status)}})
      .Add();
}

void HttpProbe::OnHttp2Failure(std::string_view reason) {
  registry_
      .AddCounter("baton_http2_failures_total",
                  "HTTP/2 connections that the server ended, by reason: too many reset requests, "
                  "frames without use, an endless or late header, a breach of the protocol.",
                  {{"reason", std::string(reason)}})
      .Add();
}

}  // namespace baton

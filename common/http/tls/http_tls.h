#pragma once

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/http/http_stream.h"
#include "common/http/tls/tls_context.h"
#include "common/security/refusals.h"

namespace baton {

// TLS for an HTTP server, with ALPN for h2 and http/1.1. Thread-safe.
class HttpTls final : public HttpStreams {
 public:
  // `files.protocols` is ignored. Errors: those of TlsContext::Open. `refusals` outlives this
  // object.
  static StatusOr<std::unique_ptr<HttpTls>> Open(TlsFiles files, Refusals& refusals);

  std::unique_ptr<HttpStream> MakeStream(boost::asio::ip::tcp::socket socket) override;

 private:
  explicit HttpTls(std::unique_ptr<TlsContext> context) : context_(std::move(context)) {}

  const std::unique_ptr<TlsContext> context_;
};

}  // namespace baton

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/http_stream.h"
#include "common/security/file_watch.h"
#include "common/security/refusals.h"

namespace boost::asio::ssl {
class context;
}

namespace baton {

// The paths of PEM files.
struct HttpTlsFiles {
  std::string certificate;
  std::string key;
  // The authority of clients' certificates. Empty: clients are not asked for certificates. A client
  // may have none; one that is not valid ends the handshake.
  std::string client_ca = {};
  // The folder of that authority's revocation lists, as `openssl rehash` names them; empty: none.
  std::string client_crl_folder = {};
};

// TLS 1.2 and 1.3 for an HTTP server, with ALPN for h2 and http/1.1. New connections use changed
// files within a second; while a changed file cannot be used, the earlier files stay in use.
// Thread-safe.
class HttpTls final : public HttpStreams {
 public:
  // InvalidArgument when the files cannot be read, are no certificate and key, or do not belong
  // together. `refusals` outlives this object.
  static StatusOr<std::unique_ptr<HttpTls>> Open(const HttpTlsFiles& files, Refusals& refusals);
  ~HttpTls() override;

  std::unique_ptr<HttpStream> MakeStream(boost::asio::ip::tcp::socket socket) override;

 private:
  using Context = boost::asio::ssl::context;

  HttpTls(const HttpTlsFiles& files,
          std::vector<FileWatch> watches,
          std::shared_ptr<Context> context,
          Refusals& refusals);
  std::shared_ptr<Context> CurrentContext();

  const HttpTlsFiles files_;
  Refusals& refusals_;
  std::mutex mutex_;  // guards the members below
  std::vector<FileWatch> watches_;
  std::shared_ptr<Context> context_;
};

}  // namespace baton

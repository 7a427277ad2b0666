#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/base/status.h"
#include "common/http/http_stream.h"
#include "common/security/file_watch.h"
#include "common/security/refusals.h"

namespace boost::asio::ssl {
class context;
}

namespace baton {

// TLS 1.2 and 1.3 for an HTTP server, with ALPN for h2 and http/1.1. New connections use a changed
// certificate within a second; while a changed file cannot be used, the earlier certificate stays.
// Thread-safe.
class HttpTls final : public HttpStreams {
 public:
  // The paths of PEM files. InvalidArgument when they cannot be read, are no certificate and key,
  // or do not belong together. `refusals` outlives this object.
  static StatusOr<std::unique_ptr<HttpTls>> Open(const std::string& certificate_file,
                                                 const std::string& key_file,
                                                 Refusals& refusals);
  ~HttpTls() override;

  std::unique_ptr<HttpStream> MakeStream(boost::asio::ip::tcp::socket socket) override;

 private:
  using Context = boost::asio::ssl::context;

  HttpTls(FileWatch certificate,
          FileWatch key,
          std::shared_ptr<Context> context,
          Refusals& refusals);
  std::shared_ptr<Context> CurrentContext();

  Refusals& refusals_;
  std::mutex mutex_;  // guards the members below
  FileWatch certificate_;
  FileWatch key_;
  std::shared_ptr<Context> context_;
};

}  // namespace baton

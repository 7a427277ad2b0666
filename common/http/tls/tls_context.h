#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/free_with.h"
#include "common/base/status.h"
#include "common/security/file_watch.h"

namespace baton {

// The paths of a server's PEM files, and what it asks of clients.
struct TlsFiles {
  std::string certificate;
  std::string key;
  // The authority of clients' certificates. Empty: clients are not asked for certificates. A
  // certificate that is not valid ends the handshake.
  std::string client_ca = {};
  // The folder of that authority's revocation lists, as `openssl rehash` names them; empty: none.
  std::string client_crl_folder = {};
  // With client_ca: a client without a certificate is refused.
  bool certificate_is_required = false;
  // What ALPN offers, the preferred protocol first.
  std::vector<std::string> protocols = {"h2"};
};

// TLS 1.2 and 1.3 for a server. New connections use changed files within a second; while a changed
// file cannot be used, the earlier files stay in use. Thread-safe.
class TlsContext final {
 public:
  // `on_reload_failed` is called when changed files cannot be used. InvalidArgument when the files
  // cannot be read, are no certificate and key, or do not belong together.
  static StatusOr<std::unique_ptr<TlsContext>> Open(TlsFiles files,
                                                    std::function<void()> on_reload_failed = {});
  ~TlsContext();

  // The server's side of a new connection.
  std::unique_ptr<SSL, FreeWith<SSL_free>> NewConnection();

 private:
  using Context = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;

  TlsContext(TlsFiles files,
             std::vector<FileWatch> watches,
             std::function<void()> on_reload_failed);
  StatusOr<Context> Load();

  const TlsFiles files_;
  const std::string protocols_;  // as ALPN writes them
  const std::function<void()> on_reload_failed_;
  std::mutex mutex_;  // guards the members below
  std::vector<FileWatch> watches_;
  Context context_;
};

}  // namespace baton

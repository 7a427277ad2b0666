#include "common/http/tls/http_tls.h"

#include <utility>

#include "common/http/tls/tls_stream.h"

namespace baton {

StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(TlsFiles files, Refusals& refusals) {
  files.protocols = {"h2", "http/1.1"};
  BATON_ASSIGN_OR_RETURN(auto context, TlsContext::Open(std::move(files), [&refusals] {
                           refusals.probe().OnReloadFailed();
                         }));
  return std::unique_ptr<HttpTls>(new HttpTls(std::move(context)));
}

std::unique_ptr<HttpStream> HttpTls::MakeStream(boost::asio::ip::tcp::socket socket) {
  return std::make_unique<TlsStream>(std::move(socket), context_->NewConnection());
}

}  // namespace baton

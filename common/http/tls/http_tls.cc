#include "common/http/tls/http_tls.h"

#include <string_view>
#include <utility>

#include <boost/asio/ssl/context.hpp>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/http/tls/tls_stream.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace ssl = boost::asio::ssl;

// As ALPN writes them: a length and the name (RFC 7301), the preferred protocol first.
constexpr unsigned char kProtocols[] = "\x02h2\x08http/1.1";

// Of TLS 1.2: those of forward secrecy and authenticated encryption. HTTP/2 prohibits nearly all
// others (RFC 9113, appendix A), and a client may choose the suite before the protocol is known.
constexpr const char* kCipherSuites = "ECDHE+AESGCM:ECDHE+CHACHA20";

const Logger kLog("http");

int SelectProtocol(SSL*,
                   const unsigned char** out,
                   unsigned char* out_size,
                   const unsigned char* in,
                   unsigned int in_size,
                   void*) {
  unsigned char* selected = nullptr;
  const int found =
      SSL_select_next_proto(&selected, out_size, kProtocols, sizeof(kProtocols) - 1, in, in_size);
  *out = selected;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

StatusOr<std::shared_ptr<ssl::context>> LoadContext(const std::string& certificate,
                                                    const std::string& key) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                           ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::single_dh_use,
                       error);
  if (!error) context->use_certificate_chain_file(certificate, error);
  if (error) {
    return InvalidArgument(
        "'{}' is not a PEM file with a certificate: {}", certificate, error.message());
  }
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error) {
    return InvalidArgument(
        "'{}' is not a PEM file with the private key of the certificate '{}': {}",
        key,
        certificate,
        error.message());
  }
  BATON_CHECK(SSL_CTX_set_cipher_list(context->native_handle(), kCipherSuites) == 1,
              "OpenSSL has none of the cipher suites {}",
              kCipherSuites);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), &SelectProtocol, nullptr);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  return context;
}

}  // namespace

StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(const std::string& certificate_file,
                                                 const std::string& key_file,
                                                 Refusals& refusals) {
  // Before the files are read, so that no change is missed.
  FileWatch certificate(certificate_file);
  FileWatch key(key_file);
  BATON_ASSIGN_OR_RETURN(auto context, LoadContext(certificate_file, key_file));
  return std::unique_ptr<HttpTls>(
      new HttpTls(std::move(certificate), std::move(key), std::move(context), refusals));
}

HttpTls::HttpTls(FileWatch certificate,
                 FileWatch key,
                 std::shared_ptr<Context> context,
                 Refusals& refusals)
    : refusals_(refusals),
      certificate_(std::move(certificate)),
      key_(std::move(key)),
      context_(std::move(context)) {}

HttpTls::~HttpTls() = default;

std::shared_ptr<HttpTls::Context> HttpTls::CurrentContext() {
  std::lock_guard lock(mutex_);
  const Time now = SteadyClock().Now();
  const bool certificate_changed = certificate_.Changed(now);
  if (!key_.Changed(now) && !certificate_changed) return context_;
  auto context = LoadContext(certificate_.path(), key_.path());
  if (context.ok()) {
    kLog.Info("new connections use the changed certificate {}", certificate_.path());
    context_ = *std::move(context);
  } else {
    refusals_.probe().OnReloadFailed();
    kLog.Error("the changed certificate cannot be used, so the earlier one stays in use: {}",
               Message(context.status()));
  }
  return context_;
}

std::unique_ptr<HttpStream> HttpTls::MakeStream(boost::asio::ip::tcp::socket socket) {
  return std::make_unique<TlsStream>(std::move(socket), CurrentContext()->native_handle());
}

}  // namespace baton

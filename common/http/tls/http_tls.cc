#include "common/http/tls/http_tls.h"

#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <filesystem>
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

// As gRPC does: without a list of the authority, none of its certificates is revoked.
int AcceptWithoutList(int accepted, X509_STORE_CTX* chain) {
  if (accepted == 0 && X509_STORE_CTX_get_error(chain) == X509_V_ERR_UNABLE_TO_GET_CRL) {
    X509_STORE_CTX_set_error(chain, X509_V_OK);
    return 1;
  }
  return accepted;
}

Status AskForCertificates(SSL_CTX* context, const HttpTlsFiles& files) {
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(files.client_ca.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(context, files.client_ca.c_str()) != 1) {
    sk_X509_NAME_pop_free(names, X509_NAME_free);
    return InvalidArgument("'{}' is not a PEM file with the certificate of the clients' authority",
                           files.client_ca);
  }
  SSL_CTX_set_client_CA_list(context, names);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, &AcceptWithoutList);
  // Resumed sessions would accept what was revoked meanwhile.
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  if (files.client_crl_folder.empty()) return OkStatus();
  if (!std::filesystem::is_directory(files.client_crl_folder)) {
    return InvalidArgument("client_crl_folder '{}' is not a folder", files.client_crl_folder);
  }
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  X509_STORE_load_path(store, files.client_crl_folder.c_str());
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  return OkStatus();
}

StatusOr<std::shared_ptr<ssl::context>> LoadContext(const HttpTlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                           ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::single_dh_use,
                       error);
  if (!error) context->use_certificate_chain_file(files.certificate, error);
  if (error) {
    return InvalidArgument(
        "'{}' is not a PEM file with a certificate: {}", files.certificate, error.message());
  }
  context->use_private_key_file(files.key, ssl::context::pem, error);
  if (error) {
    return InvalidArgument(
        "'{}' is not a PEM file with the private key of the certificate '{}': {}",
        files.key,
        files.certificate,
        error.message());
  }
  SSL_CTX* const native = context->native_handle();
  BATON_CHECK(SSL_CTX_set_cipher_list(native, kCipherSuites) == 1,
              "OpenSSL has none of the cipher suites {}",
              kCipherSuites);
  SSL_CTX_set_alpn_select_cb(native, &SelectProtocol, nullptr);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
  if (!files.client_ca.empty()) BATON_RETURN_IF_ERROR(AskForCertificates(native, files));
  return context;
}

}  // namespace

StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(const HttpTlsFiles& files, Refusals& refusals) {
  // Before the files are read, so that no change is missed.
  std::vector<FileWatch> watches;
  for (const std::string& path : {files.certificate, files.key, files.client_ca}) {
    if (!path.empty()) watches.emplace_back(path);
  }
  BATON_ASSIGN_OR_RETURN(auto context, LoadContext(files));
  return std::unique_ptr<HttpTls>(
      new HttpTls(files, std::move(watches), std::move(context), refusals));
}

HttpTls::HttpTls(const HttpTlsFiles& files,
                 std::vector<FileWatch> watches,
                 std::shared_ptr<Context> context,
                 Refusals& refusals)
    : files_(files),
      refusals_(refusals),
      watches_(std::move(watches)),
      context_(std::move(context)) {}

HttpTls::~HttpTls() = default;

std::shared_ptr<HttpTls::Context> HttpTls::CurrentContext() {
  std::lock_guard lock(mutex_);
  const Time now = SteadyClock().Now();
  bool changed = false;
  for (FileWatch& watch : watches_) changed = watch.Changed(now) || changed;
  if (!changed) return context_;
  auto context = LoadContext(files_);
  if (context.ok()) {
    kLog.Info("new connections use the changed certificate {}", files_.certificate);
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

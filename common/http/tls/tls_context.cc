#include "common/http/tls/tls_context.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

#include <filesystem>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/log/log.h"

namespace baton {
namespace {

// Of TLS 1.2: those of forward secrecy and authenticated encryption. HTTP/2 prohibits nearly all
// others (RFC 9113, appendix A), and a client may choose the suite before the protocol is known.
constexpr const char* kCipherSuites = "ECDHE+AESGCM:ECDHE+CHACHA20";

const Logger kLog("tls");

// A length and the name of each (RFC 7301, section 3.1).
std::string AlpnOf(const std::vector<std::string>& protocols) {
  std::string alpn;
  for (const std::string& protocol : protocols) {
    alpn += static_cast<char>(protocol.size());
    alpn += protocol;
  }
  return alpn;
}

// `protocols`: a std::string, as ALPN writes them.
int SelectProtocol(SSL*,
                   const unsigned char** out,
                   unsigned char* out_size,
                   const unsigned char* in,
                   unsigned int in_size,
                   void* protocols) {
  const auto& own = *static_cast<const std::string*>(protocols);
  unsigned char* selected = nullptr;
  const int found = SSL_select_next_proto(&selected,
                                          out_size,
                                          reinterpret_cast<const unsigned char*>(own.data()),
                                          static_cast<unsigned>(own.size()),
                                          in,
                                          in_size);
  *out = selected;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

// Without a list of the authority, none of its certificates is revoked.
int AcceptWithoutList(int accepted, X509_STORE_CTX* chain) {
  if (accepted == 0 && X509_STORE_CTX_get_error(chain) == X509_V_ERR_UNABLE_TO_GET_CRL) {
    X509_STORE_CTX_set_error(chain, X509_V_OK);
    return 1;
  }
  return accepted;
}

Status AskForCertificates(SSL_CTX* context, const TlsFiles& files) {
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(files.client_ca.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(context, files.client_ca.c_str()) != 1) {
    sk_X509_NAME_pop_free(names, X509_NAME_free);
    return InvalidArgument("'{}' is not a PEM file with the certificate of the clients' authority",
                           files.client_ca);
  }
  SSL_CTX_set_client_CA_list(context, names);
  SSL_CTX_set_verify(
      context,
      SSL_VERIFY_PEER | (files.certificate_is_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
      &AcceptWithoutList);
  // Resumed sessions would accept what was revoked meanwhile.
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
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

std::string LastReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "unknown reason" : reason;
}

}  // namespace

StatusOr<TlsContext::Context> TlsContext::Load() {
  Context context(SSL_CTX_new(TLS_server_method()));
  BATON_CHECK(context != nullptr, "OpenSSL has no memory for a context");
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_ALL | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);  // tickets need none
  if (SSL_CTX_use_certificate_chain_file(context.get(), files_.certificate.c_str()) != 1) {
    return InvalidArgument(
        "'{}' is not a PEM file with a certificate: {}", files_.certificate, LastReason());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return InvalidArgument(
        "'{}' is not a PEM file with the private key of the certificate '{}': {}",
        files_.key,
        files_.certificate,
        LastReason());
  }
  BATON_CHECK(SSL_CTX_set_cipher_list(context.get(), kCipherSuites) == 1,
              "OpenSSL has none of the cipher suites {}",
              kCipherSuites);
  SSL_CTX_set_alpn_select_cb(
      context.get(), &SelectProtocol, const_cast<std::string*>(&protocols_));  // only read
  if (!files_.client_ca.empty()) BATON_RETURN_IF_ERROR(AskForCertificates(context.get(), files_));
  return context;
}

StatusOr<std::unique_ptr<TlsContext>> TlsContext::Open(TlsFiles files,
                                                       std::function<void()> on_reload_failed) {
  // Before the files are read, so that no change is missed.
  std::vector<FileWatch> watches;
  for (const std::string& path : {files.certificate, files.key, files.client_ca}) {
    if (!path.empty()) watches.emplace_back(path);
  }
  std::unique_ptr<TlsContext> made(
      new TlsContext(std::move(files), std::move(watches), std::move(on_reload_failed)));
  BATON_ASSIGN_OR_RETURN(made->context_, made->Load());
  return made;
}

TlsContext::TlsContext(TlsFiles files,
                       std::vector<FileWatch> watches,
                       std::function<void()> on_reload_failed)
    : files_(std::move(files)),
      protocols_(AlpnOf(files_.protocols)),
      on_reload_failed_(std::move(on_reload_failed)),
      watches_(std::move(watches)) {}

TlsContext::~TlsContext() = default;

std::unique_ptr<SSL, FreeWith<SSL_free>> TlsContext::NewConnection() {
  std::lock_guard lock(mutex_);
  const Time now = SteadyClock().Now();
  bool changed = false;
  for (FileWatch& watch : watches_) changed = watch.Changed(now) || changed;
  if (changed) {
    auto context = Load();
    if (context.ok()) {
      kLog.Info("new connections use the changed certificate {}", files_.certificate);
      context_ = *std::move(context);
    } else {
      if (on_reload_failed_) on_reload_failed_();
      kLog.Error("the changed certificate cannot be used, so the earlier one stays in use: {}",
                 Message(context.status()));
    }
  }
  // OpenSSL counts the references of the context.
  std::unique_ptr<SSL, FreeWith<SSL_free>> ssl(SSL_new(context_.get()));
  BATON_CHECK(ssl != nullptr, "OpenSSL has no memory for a connection");
  return ssl;
}

}  // namespace baton

#include "cli/tls_diagnosis.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <memory>

#include "common/base/free_with.h"
#include "common/base/host_port.h"
#include "common/base/unique_fd.h"

namespace baton {
namespace {

// As ALPN writes it: a length and the name (RFC 7301).
constexpr unsigned char kHttp2[] = {2, 'h', '2'};
constexpr timeval kStepLimit = {.tv_sec = 2, .tv_usec = 0};

using Addresses = std::unique_ptr<addrinfo, FreeWith<freeaddrinfo>>;
using Context = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, FreeWith<SSL_free>>;

UniqueFd ConnectTo(const HostPort& to) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found) != 0) {
    return {};
  }
  const Addresses addresses(found);
  UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int limit : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    ::setsockopt(socket.get(), SOL_SOCKET, limit, &kStepLimit, sizeof(kStepLimit));
  }
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return {};
  return socket;
}

// The name or address that the certificate must have.
void ExpectHost(SSL& connection, const std::string& host) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(&connection);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) {
    SSL_set1_host(&connection, host.c_str());
    SSL_set_tlsext_host_name(&connection, host.c_str());
  }
}

// A TLS connection of its own to the router, made after gRPC's has failed.
struct Attempt {
  Context context;
  UniqueFd socket;
  Connection connection;
  bool connected = false;  // the handshake has succeeded, as far as the client knows
};

Attempt Connect(const RouterEndpoint& endpoint, int verify) {
  Attempt attempt;
  const StatusOr<HostPort> to = ParseHostPort(endpoint.address);
  if (!to.ok()) return attempt;
  attempt.context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* const context = attempt.context.get();
  if (endpoint.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else {
    SSL_CTX_load_verify_file(context, endpoint.ca_file.c_str());
  }
  if (!endpoint.certificate_file.empty()) {
    SSL_CTX_use_certificate_chain_file(context, endpoint.certificate_file.c_str());
    SSL_CTX_use_PrivateKey_file(context, endpoint.certificate_key_file.c_str(), SSL_FILETYPE_PEM);
  }
  SSL_CTX_set_verify(context, verify, nullptr);
  attempt.socket = ConnectTo(*to);
  if (!attempt.socket.valid()) return attempt;
  attempt.connection.reset(SSL_new(context));
  ExpectHost(*attempt.connection, to->host);
  SSL_set_alpn_protos(attempt.connection.get(), kHttp2, sizeof(kHttp2));
  SSL_set_fd(attempt.connection.get(), attempt.socket.get());
  attempt.connected = SSL_connect(attempt.connection.get()) == 1;
  return attempt;
}

}  // namespace

std::string WhyCertificateIsRefused(const RouterEndpoint& endpoint) {
  if (!endpoint.tls) return "";
  const Attempt attempt = Connect(endpoint, SSL_VERIFY_PEER);
  if (attempt.connection == nullptr) return "";
  const long verified = SSL_get_verify_result(attempt.connection.get());
  return verified == X509_V_OK ? "" : X509_verify_cert_error_string(verified);
}

std::string WhyClientIsRefused(const RouterEndpoint& endpoint) {
  if (endpoint.certificate_file.empty()) return "";
  const Attempt attempt = Connect(endpoint, SSL_VERIFY_PEER);
  if (!attempt.connected) return "";
  // With TLS 1.3 the server looks at the certificate after the client's handshake has ended.
  char byte = 0;
  ERR_clear_error();
  errno = 0;
  if (SSL_read(attempt.connection.get(), &byte, 1) > 0 || errno == EAGAIN) return "";
  const unsigned long error = ERR_peek_error();
  const bool alert = ERR_GET_REASON(error) > SSL_AD_REASON_OFFSET;
  return alert ? ERR_reason_error_string(error) : "it closes the connection";
}

bool SpeaksTls(const RouterEndpoint& endpoint) {
  return Connect(endpoint, SSL_VERIFY_NONE).connected;
}

}  // namespace baton

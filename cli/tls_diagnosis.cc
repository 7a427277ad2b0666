#include "cli/tls_diagnosis.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>

#include "common/base/free_with.h"
#include "common/base/host_port.h"
#include "common/base/unique_fd.h"

namespace baton {
namespace {

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

}  // namespace

std::string WhyCertificateIsRefused(const RouterEndpoint& endpoint) {
  const StatusOr<HostPort> to = ParseHostPort(endpoint.address);
  if (!endpoint.tls || !to.ok()) return "";
  const Context context(SSL_CTX_new(TLS_client_method()));
  if (endpoint.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else {
    SSL_CTX_load_verify_file(context.get(), endpoint.ca_file.c_str());
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const Connection connection(SSL_new(context.get()));
  const UniqueFd socket = ConnectTo(*to);
  if (connection == nullptr || !socket.valid()) return "";
  ExpectHost(*connection, to->host);
  SSL_set_fd(connection.get(), socket.get());
  SSL_connect(connection.get());
  const long verified = SSL_get_verify_result(connection.get());
  return verified == X509_V_OK ? "" : X509_verify_cert_error_string(verified);
}

}  // namespace baton

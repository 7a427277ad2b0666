#include "common/rpc/client_socket.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/http/tls/socket_bio.h"
#include "common/http/tls/tls_peer.h"

namespace baton {
namespace {

ClientSocket::State StateOfErrno() {
  const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return again ? ClientSocket::State::kBlocked : ClientSocket::State::kFailed;
}

}  // namespace

ClientSocket::ClientSocket(UniqueFd socket, std::unique_ptr<SSL, FreeWith<SSL_free>> ssl)
    : socket_(std::move(socket)), ssl_(std::move(ssl)) {
  if (ssl_ == nullptr) return;
  BIO* const bio = MakeSocketBio(descriptor_);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_read_ahead(ssl_.get(), 1);  // one recv for a record, instead of one for its head, too
  SSL_set_mode(ssl_.get(),
               SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                   SSL_MODE_RELEASE_BUFFERS);
  SSL_set_accept_state(ssl_.get());
}

ClientSocket::State ClientSocket::Handshake() {
  if (ssl_ == nullptr) return State::kDone;
  if (ERR_peek_error() != 0) ERR_clear_error();
  const Result result = ResultOf(SSL_do_handshake(ssl_.get()));
  if (result.state == State::kBlocked) return State::kBlocked;
  if (result.state == State::kDone && TlsProtocol(ssl_.get()) == "h2") return State::kDone;
  const long verified = SSL_get_verify_result(ssl_.get());
  if (verified != X509_V_OK) {
    refusal_ = X509_verify_cert_error_string(verified);
  } else if (result.state == State::kDone) {
    refusal_ = "the client does not offer HTTP/2 (ALPN h2)";
  } else if (const unsigned long error = ERR_peek_error(); error != 0) {
    const char* const reason = ERR_reason_error_string(error);
    refusal_ = reason == nullptr ? "the TLS handshake failed" : reason;
  }
  return State::kFailed;
}

ClientSocket::Result ClientSocket::Read(std::span<char> to) {
  if (ssl_ != nullptr) {
    if (ERR_peek_error() != 0) ERR_clear_error();
    return ResultOf(SSL_read(ssl_.get(), to.data(), static_cast<int>(to.size())));
  }
  const ssize_t got = ::recv(socket_.get(), to.data(), to.size(), MSG_DONTWAIT);
  if (got > 0) return {State::kDone, static_cast<size_t>(got)};
  return {got == 0 ? State::kEnded : StateOfErrno()};
}

ClientSocket::Result ClientSocket::Write(std::string_view from) {
  if (ssl_ != nullptr) {
    if (ERR_peek_error() != 0) ERR_clear_error();
    return ResultOf(SSL_write(ssl_.get(), from.data(), static_cast<int>(from.size())));
  }
  const ssize_t sent = ::send(socket_.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return {State::kDone, static_cast<size_t>(sent)};
  return {StateOfErrno()};
}

bool ClientSocket::has_buffered_bytes() const {
  return ssl_ != nullptr && SSL_has_pending(ssl_.get()) != 0;
}

void ClientSocket::EndWriting() {
  if (ssl_ != nullptr && SSL_is_init_finished(ssl_.get()) != 0) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // the end that TLS has; best effort
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

std::string ClientSocket::certificate_name() const {
  return ssl_ == nullptr ? "" : TlsCertificateName(ssl_.get());
}

ClientSocket::Result ClientSocket::ResultOf(int result) {
  wants_write_ = false;
  if (result > 0) return {State::kDone, static_cast<size_t>(result)};
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {State::kBlocked};
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return {State::kBlocked};
    case SSL_ERROR_ZERO_RETURN:
      return {State::kEnded};
    default:
      return {State::kFailed};
  }
}

}  // namespace baton

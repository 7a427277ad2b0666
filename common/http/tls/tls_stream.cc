#include "common/http/tls/tls_stream.h"

#include <openssl/err.h>

#include <cerrno>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>

#include "common/http/tls/socket_bio.h"
#include "common/http/tls/tls_peer.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::ip::tcp::socket;

constexpr size_t kMaxRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kDiscardBytes = 16 << 10;

}  // namespace

TlsStream::TlsStream(Socket socket, std::unique_ptr<SSL, FreeWith<SSL_free>> ssl)
    : socket_(std::move(socket)), ssl_(std::move(ssl)) {
  BIO* bio = MakeSocketBio(descriptor_);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_read_ahead(ssl_.get(), 1);  // one recv for a record, instead of one for its head, too
}

bool TlsStream::is_http2() {
  return TlsProtocol(ssl_.get()) == "h2";
}

std::string TlsStream::certificate_name() const {
  return TlsCertificateName(ssl_.get());
}

template <class Function>
TlsStream::Outcome TlsStream::Try(const Function& function) {
  // SSL_get_error would report an earlier error of this thread.
  if (ERR_peek_error() != 0) ERR_clear_error();
  errno = 0;
  const int result = function(ssl_.get());
  Outcome outcome;
  if (result > 0) {
    outcome.bytes = static_cast<size_t>(result);
    return outcome;
  }
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      outcome.wait = Socket::wait_read;
      break;
    case SSL_ERROR_WANT_WRITE:
      outcome.wait = Socket::wait_write;
      break;
    case SSL_ERROR_ZERO_RETURN:
      outcome.error = asio::error::eof;
      break;
    case SSL_ERROR_SYSCALL:
      outcome.error = error_code(errno, boost::system::system_category());
      if (!outcome.error) outcome.error = asio::error::eof;
      break;
    default:
      outcome.error =
          error_code(static_cast<int>(ERR_get_error()), asio::error::get_ssl_category());
  }
  return outcome;
}

template <class Attempt>
void TlsStream::Continue(Attempt attempt, Done done) {
  const Outcome outcome = attempt();
  if (!outcome.wait.has_value()) return done(outcome.error, outcome.bytes);
  Await(*outcome.wait, std::move(attempt), std::move(done));
}

template <class Attempt>
void TlsStream::Await(Socket::wait_type what, Attempt attempt, Done done) {
  socket_.async_wait(
      what, [this, attempt = std::move(attempt), done = std::move(done)](error_code error) mutable {
        if (error) return done(error, 0);
        Continue(std::move(attempt), std::move(done));
      });
}

template <class Attempt>
void TlsStream::Post(Attempt attempt, Done done) {
  asio::post(socket_.get_executor(),
             [this, attempt = std::move(attempt), done = std::move(done)]() mutable {
               Continue(std::move(attempt), std::move(done));
             });
}

// The client speaks first.
void TlsStream::AsyncHandshake(std::function<void(error_code)> done) {
  Await(
      Socket::wait_read,
      [this] { return Try(&SSL_accept); },
      [done = std::move(done)](error_code error, size_t) { done(error); });
}

void TlsStream::AsyncRead(asio::mutable_buffer to, Done done) {
  auto attempt = [this, to] {
    return Try([to](SSL* ssl) { return SSL_read(ssl, to.data(), static_cast<int>(to.size())); });
  };
  // Without bytes in OpenSSL's buffer, an attempt would only cost a recv that finds nothing.
  if (SSL_has_pending(ssl_.get()) == 0) {
    return Await(Socket::wait_read, std::move(attempt), std::move(done));
  }
  Post(std::move(attempt), std::move(done));
}

void TlsStream::AsyncWrite(const std::vector<asio::const_buffer>& parts, Done done) {
  parts_ = parts;
  part_ = 0;
  record_ = {};
  written_ = 0;
  const Outcome outcome = TryWrite();
  if (outcome.wait.has_value()) {
    return Await(
        *outcome.wait, [this] { return TryWrite(); }, std::move(done));
  }
  asio::post(socket_.get_executor(),
             [outcome, done = std::move(done)] { done(outcome.error, outcome.bytes); });
}

TlsStream::Outcome TlsStream::TryWrite() {
  while (true) {
    if (record_.size() == 0) record_ = TakeRecord();
    Outcome outcome;
    outcome.bytes = written_;
    if (record_.size() == 0) return outcome;
    outcome = Try([this](SSL* ssl) {
      return SSL_write(ssl, record_.data(), static_cast<int>(record_.size()));
    });
    if (outcome.error || outcome.wait.has_value()) return outcome;
    written_ += record_.size();
    record_ = {};
  }
}

asio::const_buffer TlsStream::TakeRecord() {
  while (part_ < parts_.size() && parts_[part_].size() == 0) ++part_;
  if (part_ == parts_.size()) return {};
  if (part_ + 1 == parts_.size() || parts_[part_].size() >= kMaxRecordBytes) {
    const asio::const_buffer record = asio::buffer(parts_[part_], kMaxRecordBytes);
    parts_[part_] += record.size();
    return record;
  }
  gathered_.clear();
  for (; part_ < parts_.size(); ++part_) {
    const asio::const_buffer taken =
        asio::buffer(parts_[part_], kMaxRecordBytes - gathered_.size());
    gathered_.append(static_cast<const char*>(taken.data()), taken.size());
    parts_[part_] += taken.size();
    if (parts_[part_].size() > 0) break;
  }
  return asio::buffer(gathered_);
}

void TlsStream::AsyncShutdown(std::function<void(error_code)> done) {
  auto attempt = [this] {
    return Try([](SSL* ssl) {
      const int result = SSL_shutdown(ssl);
      return result == 0 ? 1 : result;  // 0: the end is sent, and the peer's has not been received
    });
  };
  Post(std::move(attempt), [this, done = std::move(done)](error_code error, size_t) {
    if (error || (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0) return done(error);
    discarded_.resize(kDiscardBytes);
    Discard(done);
  });
}

void TlsStream::Discard(std::function<void(error_code)> done) {
  AsyncRead(asio::buffer(discarded_), [this, done = std::move(done)](error_code error, size_t) {
    if (!error) return Discard(done);
    done(error == asio::error::eof ? error_code() : error);
  });
}

}  // namespace baton

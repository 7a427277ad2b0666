#include "common/http/tls/socket_bio.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/base/check.h"

namespace baton {
namespace {

using Descriptor = std::function<int()>;

int FdOf(BIO* bio) {
  return (*static_cast<const Descriptor*>(BIO_get_data(bio)))();
}

bool MayRetry() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int Read(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(FdOf(bio), to, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && MayRetry()) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

int Write(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  const auto sent = ::send(FdOf(bio), from, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && MayRetry()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long Control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // Write keeps nothing back
}

// Lives as long as the process.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
    BATON_CHECK(made != nullptr, "OpenSSL has no memory for a kind of BIO");
    BIO_meth_set_read(made, &Read);
    BIO_meth_set_write(made, &Write);
    BIO_meth_set_ctrl(made, &Control);
    return made;
  }();
  return method;
}

}  // namespace

BIO* MakeSocketBio(const Descriptor& descriptor) {
  BIO* bio = BIO_new(SocketMethod());
  BATON_CHECK(bio != nullptr, "OpenSSL has no memory for a BIO");
  BIO_set_data(bio, const_cast<Descriptor*>(&descriptor));  // only read
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace baton

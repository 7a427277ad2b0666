#include "common/base/local_socket.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(LocalSocketTest, ThePeerIsTheProcessAtTheOtherEnd) {
  int fds[2] = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd ours(fds[0]);
  const UniqueFd theirs(fds[1]);
  const StatusOr<pid_t> peer = LocalPeer(ours);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(*peer, ::getpid());
}

TEST(LocalSocketTest, AnUnknownPeerIsNotAnotherUser) {
  const UniqueFd no_socket(::eventfd(0, EFD_CLOEXEC));
  const Status status = LocalPeer(no_socket).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(status).find("Socket operation on non-socket"), std::string::npos) << status;
}

}  // namespace
}  // namespace baton

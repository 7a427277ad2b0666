#include "kvtransfer/cuda_ipc/ipc_socket.h"

#include <gtest/gtest.h>

#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

// The kernel reports ECONNRESET to the end of a Unix-domain socket whose peer closed with unread
// frames, ahead of the frames that the peer sent.
TEST(IpcSocketTest, ReceivesTheLastFrameOfAPeerThatClosedWithUnreadFrames) {
  auto [peer, own] = ConnectedSockets();
  ASSERT_TRUE(own->Send(FrameOf(SidebandType::kWindow)).ok());
  ASSERT_TRUE(peer->Send(FrameOf(SidebandType::kDrained)).ok());
  ASSERT_TRUE(peer->Send(FrameOf(SidebandType::kBye)).ok());
  peer.reset();
  const auto drained = own->Receive();
  ASSERT_TRUE(drained.ok()) << Message(drained.status());
  EXPECT_EQ((*drained)->header.type, SidebandType::kDrained);
  const auto bye = own->Receive();
  ASSERT_TRUE(bye.ok()) << Message(bye.status());
  EXPECT_EQ((*bye)->header.type, SidebandType::kBye);
  EXPECT_EQ(own->Receive().status().code(), StatusCode::kOutOfRange);
}

TEST(IpcSocketTest, ReceivesTheLastFrameOfAPeerThatTakesNoFurtherFrame) {
  auto [peer, own] = ConnectedSockets();
  ASSERT_TRUE(peer->Send(FrameOf(SidebandType::kBye)).ok());
  peer.reset();
  ASSERT_TRUE(own->Send(FrameOf(SidebandType::kClose)).ok());
  EXPECT_EQ(own->waiting(), 0u);
  const auto bye = own->Receive();
  ASSERT_TRUE(bye.ok()) << Message(bye.status());
  EXPECT_EQ((*bye)->header.type, SidebandType::kBye);
  EXPECT_EQ(own->Receive().status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace baton

#include "common/rpc/window_updates.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/http2_frames.h"

namespace baton {
namespace {

using http2::Frame;
using http2::Number;

// One direction of a connection.
class Direction final {
 public:
  bool MayWait(const std::string& piece) {
    updates_.Begin(scanner_.at_border());
    scanner_.Scan(piece, *this);
    return updates_.MayWait(piece.size(), scanner_.at_border());
  }

  // Of the scanner's visitor.
  bool OnFrame(const FrameHead& head) {
    updates_.OnFrame(head);
    return true;
  }
  bool OnPayload(const FrameHead& head, std::string_view part, bool) {
    updates_.OnPayload(head, part);
    return true;
  }

 private:
  FrameScanner scanner_;
  WindowUpdates updates_;
};

std::string Update(uint32_t bytes, uint32_t stream = 1) {
  return Frame(http2::kWindowUpdate, http2::kNone, stream, Number(bytes, 4));
}
std::string InitialWindow(uint32_t bytes) {
  return Frame(http2::kSettings,
               http2::kNone,
               0,
               Number(3, 2) + Number(100, 4) + Number(4, 2) + Number(bytes, 4));
}

TEST(WindowUpdatesTest, OnlyPiecesWithNothingElseMayWait) {
  Direction direction;
  EXPECT_TRUE(direction.MayWait(Update(100)));
  EXPECT_TRUE(direction.MayWait(Update(100) + Update(100, 0)));
  EXPECT_FALSE(direction.MayWait(Frame(http2::kPing, http2::kNone, 0, std::string(8, 'p'))));
  EXPECT_FALSE(direction.MayWait(Update(100) + Frame(http2::kData, http2::kNone, 1, "d")));
  EXPECT_TRUE(direction.MayWait(Update(100)));
}

TEST(WindowUpdatesTest, PartsOfFramesDoNotWait) {
  const std::string update = Update(100);
  for (size_t cut = 1; cut < update.size(); ++cut) {
    Direction direction;
    EXPECT_FALSE(direction.MayWait(update.substr(0, cut))) << cut;
    EXPECT_FALSE(direction.MayWait(update.substr(cut))) << cut;
    EXPECT_TRUE(direction.MayWait(update)) << cut;
  }
}

TEST(WindowUpdatesTest, WindowsLackLittle) {
  Direction direction;
  const uint32_t half = WindowUpdates::kMaxWaiting / 2;
  EXPECT_FALSE(direction.MayWait(Update(2 * half + 1)));
  EXPECT_TRUE(direction.MayWait(Update(half)));
  EXPECT_TRUE(direction.MayWait(Update(half)));
  EXPECT_FALSE(direction.MayWait(Update(1)));
  EXPECT_TRUE(direction.MayWait(Update(half))) << "those before have been passed on";
}

TEST(WindowUpdatesTest, FewPiecesWait) {
  Direction direction;
  size_t waiting = 0;
  while (direction.MayWait(Update(1))) waiting += Update(1).size();
  EXPECT_LE(waiting, WindowUpdates::kMaxWaitingBytes);
  EXPECT_GT(waiting + Update(1).size(), WindowUpdates::kMaxWaitingBytes);
}

// Else a peer whose window is as small as an update would never be told of it.
TEST(WindowUpdatesTest, SmallWindowsAreUpdatedAtOnce) {
  Direction direction;
  EXPECT_FALSE(direction.MayWait(InitialWindow(65535)));
  EXPECT_TRUE(direction.MayWait(Update(100)));
  const std::string small = InitialWindow(65534);
  EXPECT_FALSE(direction.MayWait(small.substr(0, 17)));
  EXPECT_FALSE(direction.MayWait(small.substr(17)));
  EXPECT_FALSE(direction.MayWait(Update(100)));
}

}  // namespace
}  // namespace baton

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/sideband/frame.h"

namespace baton {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(SidebandFrameTest, ComesBackAsItWas) {
  SidebandFrame landed;
  landed.header.type = SidebandType::kLanded;
  landed.header.key = 1;
  landed.header.op = 2;
  landed.header.tag = 3;
  landed.header.granule = 4;
  landed.header.bytes = 5;
  landed.ranges = {{2, 3}, {5, 6}};
  SidebandFrame send = landed;
  send.header.type = SidebandType::kSend;
  SidebandFrame window;
  window.header.type = SidebandType::kWindow;
  window.ranges = {{7, 8}};
  SidebandFrame hello;
  hello.text = "greeting";
  SidebandFrame welcome;
  welcome.header.type = SidebandType::kWelcome;
  welcome.text = std::string("a\0b", 3);
  SidebandFrame note;
  note.header.type = SidebandType::kNote;
  note.header.key = 9;
  note.text = std::string(kMaxSidebandNoteBytes, 'n');
  for (const SidebandFrame& frame : {landed, send, window, hello, welcome, note}) {
    const std::string bytes = EncodeSidebandFrame(frame);
    const auto parsed = ParseSidebandFrame(BytesOf(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(EncodeSidebandFrame(*parsed), bytes);
    EXPECT_EQ(parsed->ranges, frame.ranges);
    EXPECT_EQ(parsed->text, frame.text);
  }
}

TEST(SidebandFrameTest, RefusesWhatIsNone) {
  SidebandFrame frame;
  frame.header.type = SidebandType::kLanded;
  frame.ranges = {{2, 3}};
  const std::string good = EncodeSidebandFrame(frame);
  const auto refused = [](const std::string& bytes) {
    return !ParseSidebandFrame(BytesOf(bytes)).ok();
  };
  for (size_t size = 0; size < good.size(); ++size) EXPECT_TRUE(refused(good.substr(0, size)));
  EXPECT_TRUE(refused(good + "x"));
  const auto changed = [&](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return bytes;
  };
  EXPECT_TRUE(refused(changed(0, 'x')));  // magic
  EXPECT_TRUE(refused(changed(4, 9)));    // version
  EXPECT_TRUE(refused(changed(6, 0)));    // type
  EXPECT_TRUE(refused(changed(6, 8)));    // between the types of the two sides
  EXPECT_TRUE(refused(changed(6, 2)));    // kAsk carries no records
  EXPECT_TRUE(refused(changed(8, 2)));    // count
  EXPECT_TRUE(refused(changed(11, 0x7f)));
  frame.ranges.resize(kMaxSidebandRecords + 1);
  EXPECT_TRUE(refused(EncodeSidebandFrame(frame)));
  SidebandFrame note;
  note.header.type = SidebandType::kNote;
  note.text = std::string(kMaxSidebandNoteBytes + 1, 'n');
  EXPECT_TRUE(refused(EncodeSidebandFrame(note)));
}

}  // namespace
}  // namespace baton

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/one_sided/frame.h"

namespace baton {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(OneSidedFrameTest, ComesBackAsItWas) {
  OneSidedFrame landed;
  landed.header.type = OneSidedType::kLanded;
  landed.header.key = 1;
  landed.header.op = 2;
  landed.header.tag = 3;
  landed.header.granule = 4;
  landed.header.bytes = 5;
  landed.runs = {{1, 2, 3}, {4, 5, 6}};
  OneSidedFrame window;
  window.header.type = OneSidedType::kWindow;
  window.ranges = {{7, 8}};
  OneSidedFrame hello;
  hello.text = "greeting";
  OneSidedFrame welcome;
  welcome.header.type = OneSidedType::kWelcome;
  welcome.text = std::string("a\0b", 3);
  OneSidedFrame note;
  note.header.type = OneSidedType::kNote;
  note.header.key = 9;
  note.text = std::string(kMaxOneSidedNoteBytes, 'n');
  for (const OneSidedFrame& frame : {landed, window, hello, welcome, note}) {
    const std::string bytes = EncodeOneSidedFrame(frame);
    const auto parsed = ParseOneSidedFrame(BytesOf(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(EncodeOneSidedFrame(*parsed), bytes);
    EXPECT_EQ(parsed->runs, frame.runs);
    EXPECT_EQ(parsed->ranges, frame.ranges);
    EXPECT_EQ(parsed->text, frame.text);
  }
}

TEST(OneSidedFrameTest, RefusesWhatIsNone) {
  OneSidedFrame frame;
  frame.header.type = OneSidedType::kLanded;
  frame.runs = {{1, 2, 3}};
  const std::string good = EncodeOneSidedFrame(frame);
  const auto refused = [](const std::string& bytes) {
    return !ParseOneSidedFrame(BytesOf(bytes)).ok();
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
  EXPECT_TRUE(refused(changed(6, 7)));    // between the types of the two sides
  EXPECT_TRUE(refused(changed(6, 2)));    // kAsk carries no records
  EXPECT_TRUE(refused(changed(8, 2)));    // count
  EXPECT_TRUE(refused(changed(11, 0x7f)));
  frame.runs.resize(kMaxOneSidedRecords + 1);
  EXPECT_TRUE(refused(EncodeOneSidedFrame(frame)));
  OneSidedFrame note;
  note.header.type = OneSidedType::kNote;
  note.text = std::string(kMaxOneSidedNoteBytes + 1, 'n');
  EXPECT_TRUE(refused(EncodeOneSidedFrame(note)));
}

}  // namespace
}  // namespace baton

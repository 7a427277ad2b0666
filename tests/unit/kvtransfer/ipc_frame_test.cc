#include "kvtransfer/cuda_ipc/ipc_frame.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/cuda_ipc/grant_table.h"

namespace baton {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(IpcFrameTest, ComesBackAsItWas) {
  IpcFrame landed;
  landed.header.type = IpcType::kLanded;
  landed.header.key = 1;
  landed.header.op = 2;
  landed.header.tag = 3;
  landed.header.granule = 4;
  landed.header.bytes = 5;
  landed.runs = {{1, 2, 3}, {4, 5, 6}};
  IpcFrame window;
  window.header.type = IpcType::kWindow;
  window.ranges = {{7, 8}};
  IpcFrame welcome;
  welcome.header.type = IpcType::kWelcome;
  welcome.text = std::string("a\0b", 3);
  IpcFrame note;
  note.header.type = IpcType::kNote;
  note.header.key = 9;
  note.text = std::string(kMaxIpcNoteBytes, 'n');
  for (const IpcFrame& frame : {landed, window, welcome, note}) {
    const std::string bytes = EncodeIpcFrame(frame);
    const auto parsed = ParseIpcFrame(BytesOf(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(EncodeIpcFrame(*parsed), bytes);
    EXPECT_EQ(parsed->runs, frame.runs);
    EXPECT_EQ(parsed->ranges, frame.ranges);
    EXPECT_EQ(parsed->text, frame.text);
  }
}

TEST(IpcFrameTest, RefusesWhatIsNone) {
  IpcFrame frame;
  frame.header.type = IpcType::kLanded;
  frame.runs = {{1, 2, 3}};
  const std::string good = EncodeIpcFrame(frame);
  const auto refused = [](const std::string& bytes) { return !ParseIpcFrame(BytesOf(bytes)).ok(); };
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
  frame.runs.resize(kMaxIpcRecords + 1);
  EXPECT_TRUE(refused(EncodeIpcFrame(frame)));
  IpcFrame note;
  note.header.type = IpcType::kNote;
  note.text = std::string(kMaxIpcNoteBytes + 1, 'n');
  EXPECT_TRUE(refused(EncodeIpcFrame(note)));
}

TEST(GrantTableTest, AWindowThatNobodyHoldsIsClosedAtOnce) {
  GrantTable table{std::chrono::seconds(1)};
  table.Close(5, 2);
  const std::vector<Arrival> arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kClosed);
  EXPECT_EQ(arrivals[0].window_key, 5u);
  EXPECT_EQ(arrivals[0].region, 2u);
}

TEST(GrantTableTest, EveryHolderMustBeDone) {
  GrantTable table{std::chrono::seconds(1)};
  table.Give(1, 5);
  table.Give(2, 5);
  table.Give(2, 6);
  table.Close(5, 0);
  table.OnDrained(3, 5);
  table.OnDrained(1, 5);
  table.OnDrained(2, 6);
  EXPECT_TRUE(table.TakeArrivals().empty());
  EXPECT_TRUE(table.is_closing());
  table.OnDrained(2);
  EXPECT_EQ(table.TakeArrivals().size(), 1u);
  EXPECT_FALSE(table.is_closing());
  EXPECT_FALSE(table.holds_any(2));
}

TEST(GrantTableTest, ALateConfirmationStillCloses) {
  GrantTable table{std::chrono::seconds(1)};
  const Time start{std::chrono::hours(1)};
  table.Give(1, 5);
  table.OnTime(start);
  table.Close(5, 0);
  table.OnTime(start + std::chrono::seconds(5));
  table.OnTime(start + std::chrono::seconds(5) + std::chrono::milliseconds(999));
  EXPECT_TRUE(table.TakeArrivals().empty());
  table.OnTime(start + std::chrono::seconds(6));
  table.OnTime(start + std::chrono::seconds(9));
  std::vector<Arrival> arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kUnfenced);
  EXPECT_FALSE(arrivals[0].status.ok());
  table.OnDrained(1, 5);
  arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kClosed);
}

}  // namespace
}  // namespace baton

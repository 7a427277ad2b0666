#include "tests/conformance/transport_conformance.h"

#include <poll.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/cpu/cpu_device.h"
#include "kernels/granule_checksum.h"

namespace baton {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

Device& HostDevice() {
  static CpuDevice device;
  return device;
}

Device& TransportConformance::ReceiverDevice() {
  return GetParam().receiver_device ? GetParam().receiver_device() : GetParam().device();
}

void TransportConformance::SetUp() {
  from_ = std::make_unique<TestMemory>(GetParam().device(), kArenaBytes);
  to_ = std::make_unique<TestMemory>(ReceiverDevice(), kArenaBytes);
  original_ = Pattern(kArenaBytes, 7);
  from_->Put(0, original_);
  sender_ = GetParam().make();
  receiver_ = GetParam().make_receiver ? GetParam().make_receiver() : GetParam().make();
  source_ = *sender_->Register(from_->buffer());
  destination_ = *receiver_->Register(to_->buffer());
  const auto descriptor = receiver_->Listen();
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  descriptor_ = *descriptor;
  ASSERT_TRUE(sender_->Reaches(descriptor_).ok()) << sender_->Reaches(descriptor_);
  auto channel = sender_->Connect(*source_, descriptor_, destination_->id());
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
}

void TransportConformance::TearDown() {
  channel_.reset();
  if (receiver_) receiver_->CloseWindow(kKey);
  source_.reset();
  destination_.reset();
}

void TransportConformance::OpenWindow(uint64_t offset, uint64_t bytes, uint64_t key) {
  const Status opened = receiver_->OpenWindow({key, destination_->id(), {{offset, bytes}}});
  ASSERT_TRUE(opened.ok()) << opened;
}

OpId TransportConformance::Write(uint64_t source,
                                 uint64_t destination,
                                 uint64_t bytes,
                                 uint64_t tag) {
  const WriteRun run{source, destination, bytes};
  WriteOp op;
  op.runs = {&run, 1};
  op.window_key = kKey;
  op.tag = tag;
  const auto id = channel_->PostWrite(op);
  EXPECT_TRUE(id.ok()) << id.status();
  return id.ok() ? *id : OpId();
}

bool TransportConformance::DriveSender() {
  bool moved = false;
  std::array<WriteEvent, 16> events;
  if (channel_) {
    const size_t count = channel_->Poll(SteadyClock().Now(), events);
    for (const WriteEvent& event : std::span(events).first(count)) {
      moved = true;
      if (event.kind == WriteEvent::Kind::kFenced) {
        ++fenced_;
      } else if (event.kind == WriteEvent::Kind::kChecksums) {
        EXPECT_FALSE(ended_.contains(event.op)) << "checksums after the end";
        EXPECT_TRUE(checksums_.emplace(event.op, event.checksums).second)
            << "checksums of operation " << event.op.value() << " came twice";
      } else {
        EXPECT_TRUE(ended_.emplace(event.op, event).second)
            << "operation " << event.op.value() << " ended twice";
      }
    }
  }
  return moved;
}

bool TransportConformance::DriveReceiver() {
  bool moved = false;
  std::array<Arrival, 16> arrivals;
  if (receiver_) {
    const size_t count = receiver_->Poll(SteadyClock().Now(), arrivals);
    for (Arrival& arrival : std::span(arrivals).first(count)) {
      moved = true;
      if (arrival.kind == Arrival::Kind::kClosed) {
        ++closed_;
      } else {
        arrived_.push_back(std::move(arrival));
      }
    }
  }
  return moved;
}

bool TransportConformance::DriveOnce() {
  const bool moved = DriveSender();
  return DriveReceiver() || moved;
}

bool TransportConformance::AwaitWork(std::chrono::milliseconds limit) const {
  std::array<pollfd, 2> fds = {pollfd{sender_->wait_fd(), POLLIN, 0},
                               pollfd{receiver_ ? receiver_->wait_fd() : -1, POLLIN, 0}};
  return ::poll(fds.data(), fds.size(), static_cast<int>(limit.count())) > 0;
}

void TransportConformance::DriveUntil(const std::function<bool()>& done) {
  const Time limit = SteadyClock().Now() + std::chrono::seconds(10);
  while (!done()) {
    ASSERT_LT(SteadyClock().Now(), limit) << "nothing moves any more";
    if (!DriveOnce()) AwaitWork(std::chrono::milliseconds(10));
  }
}

void TransportConformance::Settle() {
  for (int idle = 0; idle < 20;) {
    idle = DriveOnce() ? 0 : idle + 1;
    std::array<pollfd, 1> fds = {pollfd{receiver_ ? receiver_->wait_fd() : -1, POLLIN, 0}};
    ::poll(fds.data(), fds.size(), 1);
  }
}

bool TransportConformance::Same(uint64_t source, uint64_t destination, uint64_t bytes) const {
  const std::vector<std::byte> landed = to_->Get(destination, bytes);
  return std::equal(
      landed.begin(), landed.end(), original_.begin() + static_cast<ptrdiff_t>(source));
}

void TransportConformance::ExpectOriginals() const {
  for (const Arrival& arrival : arrived_) {
    const uint64_t at = arrival.tag << 16;
    ASSERT_TRUE(Same(at, at, 1 << 16)) << arrival.tag;
  }
}

size_t TransportConformance::CountEnded(WriteEvent::Kind kind) const {
  size_t count = 0;
  for (const auto& [op, event] : ended_) count += event.kind == kind ? 1 : 0;
  return count;
}

TEST_P(TransportConformance, AWriteArrives) {
  OpenWindow(4096, 8192);
  const OpId op = Write(100, 5000, 3000, 77);
  DriveUntilEnded(1);
  Settle();
  EXPECT_EQ(ended_.at(op).kind, WriteEvent::Kind::kDone);
  ASSERT_EQ(arrived_.size(), 1u);
  EXPECT_EQ(arrived_[0].window_key, kKey);
  EXPECT_EQ(arrived_[0].tag, 77u);
  EXPECT_EQ(arrived_[0].bytes, 3000u);
  EXPECT_EQ(arrived_[0].ranges, (std::vector<ByteRange>{{5000, 3000}}));
  EXPECT_TRUE(Same(100, 5000, 3000));
  EXPECT_EQ(Landed(4999), std::byte{0});
  EXPECT_EQ(Landed(8000), std::byte{0});
}

// Granules begin and end inside runs. Some granules have two parts, the second one tiny or not.
TEST_P(TransportConformance, ChecksumsAreOfEachGranule) {
  OpenWindow(0, kArenaBytes);
  for (const uint64_t granule : {1000u, 32800u, 60000u}) {
    const uint64_t run_bytes = granule / 10 * 7;
    std::vector<WriteRun> runs;
    std::vector<std::byte> payload;
    for (uint64_t i = 0; i < 10; ++i) {
      runs.push_back({i * granule, i * 2 * granule, run_bytes});
      const auto from = original_.begin() + static_cast<ptrdiff_t>(i * granule);
      payload.insert(payload.end(), from, from + static_cast<ptrdiff_t>(run_bytes));
    }
    WriteOp op;
    op.runs = runs;
    op.window_key = kKey;
    op.granule = granule;
    const size_t before = arrived_.size();
    const auto id = channel_->PostWrite(op);
    ASSERT_TRUE(id.ok()) << id.status();
    DriveUntil([&] { return arrived_.size() > before && ended_.size() > before; });
    ASSERT_EQ(arrived_.back().checksums.size(), 7u);
    EXPECT_EQ(checksums_.at(*id), arrived_.back().checksums);
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(arrived_.back().checksums[i],
                GranuleChecksum(std::span(payload).subspan(i * granule, granule)));
    }
  }
}

TEST_P(TransportConformance, WhoSleepsIsWoken) {
  OpenWindow(0, kArenaBytes);
  for (uint64_t i = 0; i < 64; ++i) Write(i << 16, i << 16, 1 << 16, i);
  while (ended_.size() < 64 || arrived_.size() < 64) {
    if (DriveOnce() || channel_->wants_poll()) continue;
    ASSERT_TRUE(AwaitWork(std::chrono::seconds(5))) << "of " << ended_.size() << " ends";
  }
  ExpectOriginals();
}

TEST_P(TransportConformance, AHeldWriteMovesWhenStarted) {
  OpenWindow(0, 65536);
  const WriteRun run = {0, 4096, 8192};
  WriteOp op;
  op.runs = {&run, 1};
  op.window_key = kKey;
  op.granule = 8192;
  op.held = true;
  const auto id = channel_->PostWrite(op);
  if (!sender_->caps().prefers_bursts) {
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    return;
  }
  ASSERT_TRUE(id.ok()) << id.status();
  DriveUntil([&] { return checksums_.contains(*id); });
  Settle();
  EXPECT_TRUE(arrived_.empty());
  EXPECT_EQ(Landed(4096), std::byte{0});
  channel_->Start(*id);
  DriveUntil([&] { return arrived_.size() == 1 && ended_.size() == 1; });
  EXPECT_EQ(checksums_.at(*id), arrived_[0].checksums);
  EXPECT_TRUE(Same(0, 4096, 8192));
}

TEST_P(TransportConformance, AnEmptyWriteArrives) {
  OpenWindow(0, 4096);
  WriteOp op;
  op.window_key = kKey;
  op.tag = 3;
  ASSERT_TRUE(channel_->PostWrite(op).ok());
  DriveUntil([&] { return arrived_.size() == 1 && ended_.size() == 1; });
  EXPECT_EQ(arrived_[0].bytes, 0u);
  EXPECT_EQ(arrived_[0].tag, 3u);
}

TEST_P(TransportConformance, ABigScatteredWriteArrives) {
  OpenWindow(0, kArenaBytes);
  const TransportCaps caps = sender_->caps();
  // Also of short runs, which are scattered at the receiver or at the sender.
  for (const auto& [piece, gathers] : {std::pair(4096u, false), {96u, false}, {96u, true}}) {
    to_->Fill(std::byte{0});
    std::vector<WriteRun> runs;
    const uint64_t bytes = std::min<uint64_t>(kArenaBytes, caps.max_op_bytes);
    const uint64_t count = std::min<uint64_t>(bytes / piece, caps.max_op_runs);
    for (uint64_t i = 0; i < count; ++i) {
      runs.push_back({i * piece, (i * 7919) % count * piece, piece});
      if (gathers) std::swap(runs.back().source, runs.back().destination);
    }
    WriteOp op;
    op.runs = runs;
    op.window_key = kKey;
    const size_t before = ended_.size();
    ASSERT_TRUE(channel_->PostWrite(op).ok());
    DriveUntil([&] { return arrived_.size() == before + 1 && ended_.size() == before + 1; });
    const std::vector<std::byte> landed = to_->GetAll();
    for (const WriteRun& run : runs) {
      ASSERT_EQ(std::memcmp(&original_[run.source], &landed[run.destination], run.bytes), 0);
    }
  }
}

TEST_P(TransportConformance, ManyWritesEachEndOnceAndArriveOnce) {
  OpenWindow(0, kArenaBytes);
  constexpr size_t kWrites = 2000;
  for (uint64_t i = 0; i < kWrites; ++i) Write(i * 4000, i * 4000, i * 2 + 1, i);
  DriveUntil([&] { return ended_.size() == kWrites && arrived_.size() == kWrites; });
  Settle();
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kDone), kWrites);
  EXPECT_EQ(arrived_.size(), kWrites);
  std::vector<bool> seen(kWrites);
  for (const Arrival& arrival : arrived_) seen[arrival.tag] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<ptrdiff_t>(kWrites));
  const std::vector<std::byte> landed = to_->GetAll();
  for (uint64_t i = 0; i < kWrites; ++i) {
    ASSERT_EQ(std::memcmp(&original_[i * 4000], &landed[i * 4000], i * 2 + 1), 0) << i;
  }
}

TEST_P(TransportConformance, BadWritesAreRefusedAtOnce) {
  OpenWindow(0, kArenaBytes);
  const auto post = [&](WriteRun run, uint64_t granule) {
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = kKey;
    op.granule = granule;
    return channel_->PostWrite(op).status().code();
  };
  EXPECT_EQ(post({kArenaBytes - 10, 0, 11}, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(post({~uint64_t{0} - 5, 0, 11}, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(post({0, 0, ~uint64_t{0}}, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(post({0, 0, 100}, 33), StatusCode::kInvalidArgument);
  EXPECT_EQ(post({0, 0, 0}, 0), StatusCode::kInvalidArgument);
  Settle();
  EXPECT_TRUE(ended_.empty());
}

TEST_P(TransportConformance, WritesOutsideTheWindowFailAndChangeNothing) {
  OpenWindow(4096, 4096);
  const std::vector<WriteRun> outside = {{0, 4095, 2},
                                         {0, 8191, 2},
                                         {0, 0, 100},
                                         {0, kArenaBytes, 10},
                                         {0, ~uint64_t{0} - 10, 20},
                                         {0, 4096, 5000}};
  for (const WriteRun& run : outside) Write(run.source, run.destination, run.bytes);
  DriveUntilEnded(outside.size());
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kFailed), outside.size());
  const OpId inside = Write(0, 4096, 4096);
  DriveUntilEnded(outside.size() + 1);
  EXPECT_EQ(ended_.at(inside).kind, WriteEvent::Kind::kDone);
  Settle();
  EXPECT_EQ(arrived_.size(), 1u);
  EXPECT_EQ(Landed(4095), std::byte{0});
  EXPECT_EQ(Landed(8192), std::byte{0});
}

TEST_P(TransportConformance, ANoteFollowsTheWritesOfItsWindow) {
  OpenWindow(0, 4096);
  EXPECT_FALSE(channel_->PostNote(kKey, "too early"));
  Write(0, 0, 4096);
  DriveUntilEnded(1);
  const size_t most = sender_->caps().max_note_bytes;
  const std::string note(most, 'n');
  EXPECT_EQ(channel_->PostNote(kKey, note), most > 0);
  EXPECT_FALSE(channel_->PostNote(kKey, note + "n"));
  EXPECT_FALSE(channel_->PostNote(kKey + 1, "of another window"));
  if (most > 0) {
    DriveUntil([&] { return arrived_.size() == 2; });
    EXPECT_EQ(arrived_[0].kind, Arrival::Kind::kArrived);
    EXPECT_EQ(arrived_[1].kind, Arrival::Kind::kNote);
    EXPECT_EQ(arrived_[1].window_key, kKey);
    EXPECT_EQ(arrived_[1].region, destination_->id());
    EXPECT_EQ(arrived_[1].note, note);
  }
  receiver_->CloseWindow(kKey);
  channel_->PostNote(kKey, "too late");  // the channel may not know of the close yet
  DriveUntil([&] { return closed_ == 1; });
  EXPECT_FALSE(channel_->PostNote(kKey, "too late"));
  Settle();
  EXPECT_EQ(arrived_.size(), most > 0 ? 2u : 1u);
}

TEST_P(TransportConformance, AnUnknownKeyFails) {
  OpenWindow(0, 4096, kKey + 1);
  Write(0, 0, 100);
  DriveUntilEnded(1);
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kFailed), 1u);
  EXPECT_EQ(Landed(0), std::byte{0});
  receiver_->CloseWindow(kKey + 1);
}

TEST_P(TransportConformance, NothingLandsAfterTheWindowClosed) {
  OpenWindow(0, kArenaBytes);
  for (uint64_t i = 0; i < 64; ++i) Write(i << 16, i << 16, 1 << 16, i);
  DriveUntil([&] { return !arrived_.empty(); });
  receiver_->CloseWindow(kKey);
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return closed_ == 1; });
  const size_t arrived_before = arrived_.size();
  // From here on the blocks belong to another session.
  to_->Fill(std::byte{0x55});
  DriveUntilEnded(64);
  Settle();
  EXPECT_EQ(arrived_.size(), arrived_before);
  EXPECT_EQ(closed_, 1);
  const std::vector<std::byte> landed = to_->GetAll();
  for (size_t i = 0; i < kArenaBytes; ++i) ASSERT_EQ(landed[i], std::byte{0x55}) << i;
}

TEST_P(TransportConformance, TheSourceIsFreeAfterTheEnd) {
  OpenWindow(0, kArenaBytes);
  std::vector<OpId> ops;
  for (uint64_t i = 0; i < 64; ++i) ops.push_back(Write(i << 16, i << 16, 1 << 16, i));
  DriveUntil([&] { return !ended_.empty(); });
  for (const OpId op : ops) channel_->RequestAbort(op);
  DriveUntilEnded(64);
  // These bytes must not arrive any more.
  from_->Fill(std::byte{0x55});
  Settle();
  ExpectOriginals();
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool done = ended_.at(ops[i]).kind == WriteEvent::Kind::kDone;
    const bool counted =
        std::any_of(arrived_.begin(), arrived_.end(), [&](const Arrival& a) { return a.tag == i; });
    EXPECT_TRUE(counted || !done) << "write " << i << " is done, but never arrived";
  }
}

TEST_P(TransportConformance, FenceEndsEverything) {
  OpenWindow(0, kArenaBytes);
  for (uint64_t i = 0; i < 64; ++i) Write(i << 16, i << 16, 1 << 16, i);
  DriveUntil([&] { return !ended_.empty(); });
  channel_->Fence();
  DriveUntil([&] { return fenced_ == 1; });
  EXPECT_EQ(ended_.size(), 64u);
  from_->Fill(std::byte{0x55});
  EXPECT_FALSE(channel_->PostWrite({}).ok());
  EXPECT_FALSE(channel_->status().ok());
  Settle();
  ExpectOriginals();
  // The peer accepts a new channel.
  ended_.clear();
  arrived_.clear();
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  Write(0, 0, 100);
  DriveUntilEnded(1);
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kDone), 1u);
}

TEST_P(TransportConformance, TheDeathOfThePeerFailsWhatIsOutstanding) {
  OpenWindow(0, kArenaBytes);
  Write(0, 0, 100);
  DriveUntilEnded(1);
  for (uint64_t i = 0; i < 64; ++i) Write(0, 0, 1 << 16);
  receiver_->CloseWindow(kKey);
  destination_.reset();
  receiver_.reset();
  DriveUntilEnded(65);
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kFailed), 64u);
  EXPECT_EQ(channel_->status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(channel_->PostWrite({}).ok());
  auto channel = sender_->Connect(*source_, descriptor_, 0);
  if (!channel.ok()) return;
  channel_ = *std::move(channel);
  ended_.clear();
  const auto op = channel_->PostWrite({});
  if (op.ok()) DriveUntilEnded(1);
  EXPECT_EQ(CountEnded(WriteEvent::Kind::kDone), 0u);
}

TEST_P(TransportConformance, MemoryCanBeRegisteredAnew) {
  OpenWindow(0, 4096);
  Write(0, 0, 4096);
  DriveUntilEnded(1);
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return closed_ == 1; });
  channel_.reset();
  source_.reset();
  destination_.reset();
  TestMemory other_from(GetParam().device(), 1 << 16);
  TestMemory other_to(ReceiverDevice(), 1 << 16);
  other_from.Put(0, Pattern(1 << 16, 9));
  source_ = *sender_->Register(other_from.buffer());
  destination_ = *receiver_->Register(other_to.buffer());
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  OpenWindow(0, 1 << 16);
  ended_.clear();
  Write(0, 0, 1 << 16);
  DriveUntilEnded(1);
  EXPECT_EQ(other_to.GetAll(), Pattern(1 << 16, 9));
  channel_.reset();
  receiver_->CloseWindow(kKey);
  source_.reset();
  destination_.reset();
}

TEST_P(TransportConformance, WindowsAreCheckedWhenOpened) {
  const uint32_t region = destination_->id();
  EXPECT_FALSE(receiver_->OpenWindow({1, region + 99, {}}).ok());
  EXPECT_FALSE(receiver_->OpenWindow({1, region, {{kArenaBytes, 1}}}).ok());
  EXPECT_FALSE(receiver_->OpenWindow({1, region, {{~uint64_t{0}, 2}}}).ok());
  EXPECT_FALSE(receiver_->OpenWindow({1, region, {{10, 10}, {15, 10}}}).ok());
  EXPECT_FALSE(receiver_->OpenWindow({1, region, {{10, 10}, {0, 5}}}).ok());
  EXPECT_TRUE(receiver_->OpenWindow({1, region, {{0, 5}, {10, 10}}}).ok());
  EXPECT_EQ(receiver_->OpenWindow({1, region, {}}).code(), StatusCode::kAlreadyExists);
  receiver_->CloseWindow(1);
  DriveUntil([&] { return closed_ == 1; });
}

TEST_P(TransportConformance, GarbageDescriptorsAreRefused) {
  for (const std::string& text : {std::string(),
                                  std::string("1|"),
                                  std::string("1||"),
                                  std::string("1|x|y"),
                                  std::string("\0\1\2", 3),
                                  std::string(4000, '|'),
                                  std::string("1|0.0.0.0:0")}) {
    EXPECT_FALSE(sender_->Reaches(text).ok()) << text.substr(0, 20);
    EXPECT_FALSE(sender_->Connect(*source_, text, 0).ok()) << text.substr(0, 20);
  }
}

}  // namespace baton

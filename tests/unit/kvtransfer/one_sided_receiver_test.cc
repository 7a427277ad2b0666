#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/local_socket.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "tests/conformance/test_memory.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

// A sender that sends arbitrary frames to a receiving transport.
class HostileSenderTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = *CudaIpcTransport::Create(Options(), &gpu_, [this](auto line) { log_ += line; });
    region_ = *transport_->Register(arena_.buffer());
    const std::string descriptor = *transport_->Listen();
    name_ = descriptor.substr(descriptor.find("baton-ipc-"), 26);
    ASSERT_TRUE(transport_->OpenWindow({kKey, region_->id(), {{1024, 1024}}}).ok());
    peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  }
  void TearDown() override {
    peer_.reset();
    region_.reset();
  }

  // Polls often enough that nothing more happens.
  void Serve() {
    for (int i = 0; i < 20; ++i) {
      std::array<Arrival, 8> arrivals;
      const size_t count = transport_->Poll(now_, arrivals);
      for (Arrival& arrival : std::span(arrivals).first(count)) {
        arrived_.push_back(std::move(arrival));
      }
      Hear(*peer_, heard_);
    }
  }
  void ServeUntil(const std::function<bool()>& done) {
    const Time until = SteadyClock().Now() + std::chrono::seconds(10);
    while (!done() && SteadyClock().Now() < until) Serve();
    EXPECT_TRUE(done());
  }
  void Say(const SidebandFrame& frame) { EXPECT_TRUE(peer_->Send(frame).ok()); }
  void Greet(BootId boot = {}) {
    Say(FrameOf(SidebandType::kHello, boot.value()));
    Serve();
    ASSERT_NE(heard_.Last(SidebandType::kWelcome), nullptr);
  }
  void Ask(uint64_t key) {
    Say(FrameOf(SidebandType::kAsk, key));
    Serve();
    ASSERT_NE(heard_.Last(SidebandType::kWindow), nullptr);
  }
  // Releases its windows with kBye, so that nothing waits for them when the test ends.
  void SayBye() {
    Say(FrameOf(SidebandType::kBye));
    Serve();
    transport_->CloseWindow(kKey);
    Serve();
  }
  static SidebandFrame Landed(WriteRun run, uint64_t key = kKey) {
    SidebandFrame frame = FrameOf(SidebandType::kLanded, key);
    frame.header.op = 1;
    frame.header.bytes = run.bytes;
    frame.ranges = {{run.destination, run.bytes}};
    return frame;
  }
  // A copy has landed, and its checksum takes until gpu_.Release().
  void LandUnderLongChecksum() {
    gpu_.Hold();
    SidebandFrame landed = Landed({0, 1024, 100});
    landed.header.granule = 100;
    Say(landed);
    Serve();
  }
  size_t Count(Arrival::Kind kind) const {
    size_t count = 0;
    for (const Arrival& arrival : arrived_) count += arrival.kind == kind ? 1 : 0;
    return count;
  }

  FakeGpu gpu_;
  TestMemory arena_{gpu_, 4096};
  std::string log_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  std::string name_;
  std::optional<IpcSocket> peer_;
  Time now_{std::chrono::hours(1)};
  Heard heard_;
  std::vector<Arrival> arrived_;
};

TEST_F(HostileSenderTest, FramesOutOfPlaceEndTheConnection) {
  Say(FrameOf(SidebandType::kAsk, kKey));
  Serve();
  EXPECT_FALSE(heard_.is_open);
  EXPECT_TRUE(heard_.frames.empty());
  for (const SidebandType type :
       {SidebandType::kHello, SidebandType::kWelcome, SidebandType::kAck}) {
    peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
    heard_ = {};
    Greet();
    Say(FrameOf(type));
    Serve();
    EXPECT_FALSE(heard_.is_open) << static_cast<int>(type);
  }
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, ANoteCountsOnlyFromWhoWasGivenItsWindow) {
  Greet();
  SidebandFrame note = FrameOf(SidebandType::kNote, kKey);
  note.text = "let me in";
  Say(note);
  Serve();
  EXPECT_TRUE(arrived_.empty());
  Ask(kKey);
  Say(note);
  Serve();
  ASSERT_EQ(Count(Arrival::Kind::kNote), 1u);
  EXPECT_EQ(arrived_[0].note, "let me in");
  transport_->CloseWindow(kKey);
  Say(note);
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kNote), 1u);
  EXPECT_TRUE(heard_.is_open);
}

TEST_F(HostileSenderTest, NotesThatNobodyTakesAreNotReadOn) {
  Greet();
  Ask(kKey);
  SidebandFrame note = FrameOf(SidebandType::kNote, kKey);
  note.text = std::string(kMaxSidebandNoteBytes, 'n');
  constexpr size_t kNotes = 400;
  for (size_t i = 0; i < kNotes; ++i) Say(note);
  for (int i = 0; i < 500; ++i) {
    transport_->Poll(now_, {});
    ASSERT_TRUE(peer_->Flush().ok());
  }
  EXPECT_GT(peer_->waiting(), 100u);
  ServeUntil([&] {
    EXPECT_TRUE(peer_->Flush().ok());
    return Count(Arrival::Kind::kNote) == kNotes;
  });
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, AnUnknownRegionOrWindowIsRefused) {
  SidebandFrame hello = FrameOf(SidebandType::kHello);
  hello.header.op = 9;
  Say(hello);
  Serve();
  EXPECT_FALSE(heard_.is_open);
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  heard_ = {};
  Greet();
  Ask(kKey + 1);
  EXPECT_EQ(heard_.Last(SidebandType::kWindow)->header.code,
            static_cast<uint32_t>(StatusCode::kNotFound));
  Ask(kKey);
  EXPECT_EQ(heard_.Last(SidebandType::kWindow)->header.code, 0u);
  EXPECT_EQ(heard_.Last(SidebandType::kWindow)->ranges, (std::vector<ByteRange>{{1024, 1024}}));
  Say(FrameOf(SidebandType::kBye));
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, AGreetingThatIsNotEmptyIsRefused) {
  SidebandFrame hello = FrameOf(SidebandType::kHello);
  hello.text = "x";
  Say(hello);
  Serve();
  EXPECT_FALSE(heard_.is_open);
  EXPECT_NE(log_.find("the greeting has 1 bytes"), std::string::npos) << log_;
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, WhatItMayNotWriteIsNotCounted) {
  Greet();
  const auto refused = [&](StatusCode code) {
    Serve();
    const SidebandFrame* ack = heard_.Last(SidebandType::kAck);
    EXPECT_TRUE(ack != nullptr && ack->header.code == static_cast<uint32_t>(code));
    heard_.frames.clear();
  };
  Say(Landed({0, 1024, 100}));  // it never asked for the window
  refused(StatusCode::kNotFound);
  Ask(kKey);
  Say(Landed({0, 1000, 100}));
  refused(StatusCode::kPermissionDenied);
  EXPECT_NE(log_.find("that it was not given"), std::string::npos) << log_;
  Say(Landed({0, ~uint64_t{0} - 50, 100}));
  refused(StatusCode::kPermissionDenied);
  EXPECT_TRUE(arrived_.empty());
  Say(Landed({0, 1024, 100}));
  refused(StatusCode::kOk);
  EXPECT_EQ(arrived_.size(), 1u);
  SidebandFrame wrong = Landed({0, 1024, 100});
  wrong.header.bytes = 99;
  Say(wrong);
  Serve();
  EXPECT_FALSE(heard_.is_open);
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, WhatFollowsAWindowAndBytesIsLookedForALittleWhile) {
  const auto wants_poll = [&] { return IsWokenIn(0, *transport_); };
  const auto stops = [&] {
    now_ += std::chrono::milliseconds(5);
    Serve();
    return !wants_poll();
  };
  Greet();
  EXPECT_FALSE(wants_poll());
  Ask(kKey);
  EXPECT_TRUE(wants_poll());
  EXPECT_TRUE(stops());
  Say(Landed({0, 1024, 100}));
  ServeUntil([&] { return Count(Arrival::Kind::kArrived) == 1; });
  EXPECT_TRUE(wants_poll());
  EXPECT_TRUE(stops());
  SayBye();
}

TEST_F(HostileSenderTest, AChecksumThatTakesLongIsHeardOf) {
  Greet();
  Ask(kKey);
  LandUnderLongChecksum();
  now_ += std::chrono::milliseconds(5);
  Serve();
  EXPECT_FALSE(IsWokenIn(0, *transport_));
  gpu_.Release();
  EXPECT_TRUE(IsWokenIn(5000, *transport_));
  ServeUntil([&] { return Count(Arrival::Kind::kArrived) == 1; });
  EXPECT_EQ(arrived_[0].checksums.size(), 1u);
  SayBye();
}

// Its blocks go to another session, whose writes would race with the checksum.
TEST_F(HostileSenderTest, AWindowIsClosedOnlyWhenItsChecksumsHaveEnded) {
  Greet();
  Ask(kKey);
  LandUnderLongChecksum();
  transport_->CloseWindow(kKey);
  Say(FrameOf(SidebandType::kDrained, kKey));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 0u);
  gpu_.Release();
  ServeUntil([&] { return Count(Arrival::Kind::kClosed) == 1; });
  EXPECT_EQ(Count(Arrival::Kind::kArrived), 0u);
  SayBye();
}

TEST_F(HostileSenderTest, AWindowIsClosedByItsHoldersWordAlone) {
  Greet();
  Ask(kKey);
  transport_->CloseWindow(kKey);
  Serve();
  EXPECT_NE(heard_.Last(SidebandType::kClose), nullptr);
  EXPECT_TRUE(arrived_.empty());
  Say(Landed({0, 1024, 100}));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kArrived), 0u);
  Say(FrameOf(SidebandType::kDrained, kKey + 1));
  Serve();
  EXPECT_TRUE(arrived_.empty());
  Say(FrameOf(SidebandType::kDrained, kKey));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 1u);
}

// A sender whose worker the window is for has it before it asks.
class GivenWindowTest : public HostileSenderTest {
 protected:
  static constexpr uint64_t kGiven = kKey + 1;
  void Open(uint32_t region, BootId peer) {
    ASSERT_TRUE(transport_->OpenWindow({kGiven, region, {{0, 512}}, peer}).ok());
    Serve();
  }
  void CloseAll() {
    transport_->CloseWindow(kGiven);
    transport_->CloseWindow(kKey);
    Serve();
  }
};

TEST_F(GivenWindowTest, IsClosedByItsHoldersWordAlone) {
  Greet(BootId(5));
  Open(region_->id(), BootId(5));
  ASSERT_NE(heard_.Last(SidebandType::kWindow), nullptr);
  EXPECT_EQ(heard_.Last(SidebandType::kWindow)->header.key, kGiven);
  EXPECT_EQ(heard_.Last(SidebandType::kWindow)->ranges, (std::vector<ByteRange>{{0, 512}}));
  CloseAll();
  EXPECT_NE(heard_.Last(SidebandType::kClose), nullptr);
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 1u) << "the sender may still write";
  Say(FrameOf(SidebandType::kDrained, kGiven));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 2u);
}

TEST_F(GivenWindowTest, IsNotGivenAgainToARequestThatCrossedIt) {
  Greet(BootId(5));
  Open(region_->id(), BootId(5));
  heard_.frames.clear();
  Say(FrameOf(SidebandType::kAsk, kGiven));
  Serve();
  EXPECT_TRUE(heard_.frames.empty());
  // Nor is the request refused when it comes after the close.
  transport_->CloseWindow(kGiven);
  Say(FrameOf(SidebandType::kAsk, kGiven));
  Serve();
  EXPECT_EQ(heard_.Last(SidebandType::kWindow), nullptr);
  Say(FrameOf(SidebandType::kDrained, kGiven));
  CloseAll();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 2u);
}

TEST_F(GivenWindowTest, IsOfNobodyElse) {
  TestMemory other(gpu_, 4096);
  const auto region = *transport_->Register(other.buffer());
  Greet(BootId(5));
  for (const auto& [id, boot] : {std::pair(region_->id(), BootId(6)),
                                 std::pair(region_->id(), BootId()),
                                 std::pair(region->id(), BootId(5))}) {
    Open(id, boot);
    EXPECT_EQ(heard_.Last(SidebandType::kWindow), nullptr);
    transport_->CloseWindow(kGiven);
    Serve();
  }
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 3u);
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  Greet();  // without a worker
  Open(region_->id(), BootId());
  EXPECT_EQ(heard_.Last(SidebandType::kWindow), nullptr);
  CloseAll();
}

TEST_F(HostileSenderTest, WithoutAWordTheWindowIsUnfenced) {
  Greet();
  Ask(kKey);
  transport_->CloseWindow(kKey);
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));  // closes the first connection
  Serve();
  EXPECT_TRUE(arrived_.empty());
  now_ += kFence;
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kUnfenced), 1u);
  now_ += kFence;
  Serve();
  EXPECT_EQ(arrived_.size(), 1u);  // this process has not ended, so no proof comes
  EXPECT_NE(log_.find("may still write"), std::string::npos) << log_;
}

TEST_F(HostileSenderTest, AGoodbyeGivesEveryWindowBack) {
  Greet();
  Ask(kKey);
  Say(FrameOf(SidebandType::kBye));
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  Serve();
  transport_->CloseWindow(kKey);
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 1u);
}

TEST_F(HostileSenderTest, AWindowOfManyRangesComesInParts) {
  TestMemory large(gpu_, size_t{10000} * 32);
  const auto region = *transport_->Register(large.buffer());
  std::vector<ByteRange> ranges;
  for (uint64_t i = 0; i < 10000; ++i) ranges.push_back({i * 32, 16});
  ASSERT_TRUE(transport_->OpenWindow({kKey + 1, region->id(), ranges}).ok());
  SidebandFrame hello = FrameOf(SidebandType::kHello);
  hello.header.op = region->id();
  Say(hello);
  Ask(kKey + 1);
  ServeUntil([&] { return heard_.frames.size() == 4; });
  std::vector<ByteRange> heard;
  for (const SidebandFrame& frame : heard_.frames) {
    heard.insert(heard.end(), frame.ranges.begin(), frame.ranges.end());
  }
  EXPECT_EQ(heard, ranges);
  Say(FrameOf(SidebandType::kBye));
  Serve();
  transport_->CloseWindow(kKey + 1);
  transport_->CloseWindow(kKey);
  Serve();
}

}  // namespace
}  // namespace baton

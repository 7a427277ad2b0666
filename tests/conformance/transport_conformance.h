#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/transport.h"
#include "tests/conformance/test_memory.h"

namespace baton {

// What the suite needs to know of the transport it runs against.
struct TransportUnderTest {
  std::string name;
  std::function<std::unique_ptr<Transport>()> make;
  // Whose memory it moves.
  std::function<Device&()> device;
  // Those of the receiving side, when they are others.
  std::function<std::unique_ptr<Transport>()> make_receiver = {};
  std::function<Device&()> receiver_device = {};
};

Device& HostDevice();

inline void PrintTo(const TransportUnderTest& transport, std::ostream* out) {
  *out << transport.name;
}

// A sender and a receiver on one transport kind, and what they reported. To run the suite against a
// new transport: add it to conformance_test.cc, or compile the two *_conformance.cc into a test
// that says INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance, …).
class TransportConformance : public testing::TestWithParam<TransportUnderTest> {
 protected:
  static constexpr size_t kArenaBytes = size_t{8} << 20;
  static constexpr uint64_t kKey = 0x5eed;

  void SetUp() override;
  void TearDown() override;

  // Opens `kKey` over [offset, offset + bytes) of the receiving region.
  void OpenWindow(uint64_t offset, uint64_t bytes, uint64_t key = kKey);
  // Posts a write of one run and expects that it is accepted.
  OpId Write(uint64_t source, uint64_t destination, uint64_t bytes, uint64_t tag = 0);
  // Let one side do what it can. False: nothing came of it.
  bool DriveSender();
  bool DriveReceiver();
  // Both of them.
  bool DriveOnce();
  // Sleeps until a side calls for its thread. False: none did within the limit.
  bool AwaitWork(std::chrono::milliseconds limit) const;
  // Moves both sides on until `done`; fails the test after ten seconds.
  void DriveUntil(const std::function<bool()>& done);
  void DriveUntilEnded(size_t ops) {
    DriveUntil([&] { return ended_.size() >= ops; });
  }
  // Moves both sides on until nothing has happened for a while.
  void Settle();
  // Whether the receiver's memory now holds what the sender's held at first.
  bool Same(uint64_t source, uint64_t destination, uint64_t bytes) const;
  std::byte Landed(uint64_t offset) const { return to_->Get(offset, 1)[0]; }
  // Expects that every operation which arrived brought what the sender's memory held at first.
  void ExpectOriginals() const;
  size_t CountEnded(WriteEvent::Kind kind) const;
  // Lets the sender take `ops` back while the receiver stands still, and overwrites the source of
  // each that has ended with that; then both go on to the end.
  void TakeBack(const std::vector<std::pair<OpId, ByteRange>>& ops);

  static Device& ReceiverDevice();

  std::unique_ptr<Transport> sender_;
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<TestMemory> from_;
  std::unique_ptr<TestMemory> to_;
  std::vector<std::byte> original_;  // contents of from_
  std::unique_ptr<Region> source_;
  std::unique_ptr<Region> destination_;
  std::string descriptor_;
  std::unique_ptr<Channel> channel_;

  std::map<OpId, WriteEvent> ended_;
  std::map<OpId, std::vector<uint64_t>> checksums_;  // of sources
  int fenced_ = 0;
  std::vector<Arrival> arrived_;
  int closed_ = 0;
};

}  // namespace baton

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

// The transport that the suite tests.
struct TransportUnderTest {
  std::string name;
  std::function<std::unique_ptr<Transport>()> make;
  // The device whose memory it moves.
  std::function<Device&()> device;
  // The transport and device of the receiving side, if they differ.
  std::function<std::unique_ptr<Transport>()> make_receiver = {};
  std::function<Device&()> receiver_device = {};
};

Device& HostDevice();

inline void PrintTo(const TransportUnderTest& transport, std::ostream* out) {
  *out << transport.name;
}

// A sender and a receiver on one kind of transport, and the events that they reported. To run the
// suite against a new transport: add it to conformance_test.cc, or compile the two *_conformance.cc
// into a test with INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance, …).
class TransportConformance : public testing::TestWithParam<TransportUnderTest> {
 protected:
  static constexpr size_t kArenaBytes = size_t{8} << 20;
  static constexpr uint64_t kKey = 0x5eed;

  void SetUp() override;
  void TearDown() override;

  // Opens window `key` over [offset, offset + bytes) of the receiving region.
  void OpenWindow(uint64_t offset, uint64_t bytes, uint64_t key = kKey);
  // Posts a write of one run and expects that it is accepted.
  OpId Write(uint64_t source, uint64_t destination, uint64_t bytes, uint64_t tag = 0);
  // Polls one side once. False: no event came.
  bool DriveSender();
  bool DriveReceiver();
  // Polls both sides once.
  bool DriveOnce();
  // Sleeps until the wait_fd of a side is readable. False: none became readable within the limit.
  bool AwaitWork(std::chrono::milliseconds limit) const;
  // Polls both sides until `done`; fails the test after ten seconds.
  void DriveUntil(const std::function<bool()>& done);
  void DriveUntilEnded(size_t ops) {
    DriveUntil([&] { return ended_.size() >= ops; });
  }
  // Polls both sides until 20 polls in a row, 1 ms apart, gave no event.
  void Settle();
  // Whether the receiver's memory now holds the original contents of the sender's memory.
  bool Same(uint64_t source, uint64_t destination, uint64_t bytes) const;
  std::byte Landed(uint64_t offset) const { return to_->Get(offset, 1)[0]; }
  // Expects that every arrived operation brought the original contents of the sender's memory.
  void ExpectOriginals() const;
  size_t CountEnded(WriteEvent::Kind kind) const;
  // Lets the sender take `ops` back while the receiver is not polled, and overwrites the sources of
  // the operations that have ended by then. Then both sides run until all operations have ended.
  void TakeBack(const std::vector<std::pair<OpId, ByteRange>>& ops);

  static Device& ReceiverDevice();

  // The memory outlives the transports, because their copies may still run when a test ends.
  std::unique_ptr<TestMemory> from_;
  std::unique_ptr<TestMemory> to_;
  std::vector<std::byte> original_;  // original contents of from_
  std::unique_ptr<Transport> sender_;
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Region> source_;
  std::unique_ptr<Region> destination_;
  std::string descriptor_;
  std::unique_ptr<Channel> channel_;

  std::map<OpId, WriteEvent> ended_;
  std::map<OpId, std::vector<uint64_t>> checksums_;  // of the sources
  int fenced_ = 0;
  std::vector<Arrival> arrived_;
  int closed_ = 0;
};

}  // namespace baton

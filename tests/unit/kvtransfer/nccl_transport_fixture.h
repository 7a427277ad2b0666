#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/nccl/nccl_transport.h"
#include "tests/conformance/test_memory.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

// Two ends of the transport "nccl" on two fake GPUs, with a channel and a window.
namespace baton {

class NcclTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    from_.Put(0, original_);
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.fence_timeout = fence_timeout_;
    options.nccl.connect_timeout = connect_timeout_;
    options.nccl.stall_timeout = std::chrono::milliseconds(200);
    sender_ = Make(options, sending_gpu_);
    // The sender's watchdog is the first.
    options.nccl.connect_timeout *= 2;
    options.nccl.stall_timeout *= 2;
    receiver_ = Make(options, receiving_gpu_);
    source_ = *sender_->Register(from_.buffer());
    destination_ = *receiver_->Register(to_.buffer());
    descriptor_ = *receiver_->Listen();
    Connect();
    Open(kKey);
  }
  void TearDown() override {
    SetFaults({});
    channel_.reset();
    for (uint64_t key = kKey; key < kKey + 4; ++key) receiver_->CloseWindow(key);
    source_.reset();
    destination_.reset();
  }

  std::unique_ptr<NcclTransport> Make(const TransportOptions& options, FakeGpu& gpu) {
    auto transport = NcclTransport::Create(
        options, &gpu, [this](std::string_view line) { log_ += std::string(line) + "\n"; });
    return std::unique_ptr<NcclTransport>(static_cast<NcclTransport*>(transport->release()));
  }
  void Connect() { channel_ = *sender_->Connect(*source_, descriptor_, destination_->id()); }
  void Open(uint64_t key) {
    ASSERT_TRUE(receiver_->OpenWindow({key, destination_->id(), {{0, kArenaBytes}}}).ok());
  }
  void SetFaults(const PairFaults& faults) {
    sending_gpu_.pairs().SetFaults(faults);
    receiving_gpu_.pairs().SetFaults(faults);
  }
  OpId Write(uint64_t at, uint64_t key = kKey) {
    const WriteRun run{at, at, kWriteBytes};
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = key;
    op.tag = at;
    const auto id = channel_->PostWrite(op);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : OpId();
  }
  void Drive() {
    std::array<WriteEvent, 16> events;
    if (channel_) {
      const size_t count = channel_->Poll(SteadyClock().Now(), events);
      for (const WriteEvent& event : std::span(events).first(count)) {
        if (event.kind == WriteEvent::Kind::kFenced) {
          ++fenced_;
        } else {
          ended_[event.op] = event;
        }
      }
    }
    std::array<Arrival, 16> arrivals;
    const size_t count = receiver_->Poll(SteadyClock().Now(), arrivals);
    for (Arrival& arrival : std::span(arrivals).first(count)) arrived_.push_back(arrival);
    std::array<Arrival, 1> none;
    (void)sender_->Poll(SteadyClock().Now(), none);
  }
  // Polls both sides until `done`, for at most ten seconds.
  void DriveUntil(const std::function<bool()>& done) {
    const Time limit = SteadyClock().Now() + std::chrono::seconds(10);
    while (!done()) {
      ASSERT_LT(SteadyClock().Now(), limit) << "nothing moves any more";
      Drive();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void DriveFor(Duration time) {
    const Time until = SteadyClock().Now() + time;
    DriveUntil([&] { return SteadyClock().Now() >= until; });
  }
  size_t CountArrivals(Arrival::Kind kind) const {
    return static_cast<size_t>(
        std::ranges::count_if(arrived_, [&](const Arrival& a) { return a.kind == kind; }));
  }
  std::vector<std::byte> Original(uint64_t at) const {
    const auto begin = original_.begin() + static_cast<ptrdiff_t>(at);
    return {begin, begin + static_cast<ptrdiff_t>(kWriteBytes)};
  }

  static constexpr uint64_t kWriteBytes = uint64_t{1} << 16;
  static constexpr size_t kArenaBytes = size_t{4} << 20;

  // Of the receiver's own copies. Long enough for copies that nothing holds.
  Duration fence_timeout_ = std::chrono::seconds(2);
  Duration connect_timeout_ = std::chrono::milliseconds(400);  // the sender's; half the receiver's
  FakeGpu sending_gpu_;
  FakeGpu receiving_gpu_;
  TestMemory from_{sending_gpu_, kArenaBytes};
  TestMemory to_{receiving_gpu_, kArenaBytes};
  const std::vector<std::byte> original_ = Pattern(kArenaBytes, 3);
  std::string log_;
  std::unique_ptr<NcclTransport> sender_;
  std::unique_ptr<NcclTransport> receiver_;
  std::unique_ptr<Region> source_;
  std::unique_ptr<Region> destination_;
  std::string descriptor_;
  std::unique_ptr<Channel> channel_;
  std::map<OpId, WriteEvent> ended_;
  std::vector<Arrival> arrived_;
  int fenced_ = 0;
};

}  // namespace baton

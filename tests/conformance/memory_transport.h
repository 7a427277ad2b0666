#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/transport.h"
#include "kvtransfer/wire/granule_hasher.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// The faults of the delayed-write transport; each is a probability per write.
struct WriteFaults {
  uint64_t seed = 1;
  double late = 0;     // applied up to `latest` later, so that writes overtake each other
  double twice = 0;    // applied again, up to `latest` after the first time
  double never = 0;    // not applied; the sender aborts or fences it
  double torn = 0;     // half is applied at once, and the whole up to `latest` later
  double corrupt = 0;  // other bytes land; the checksum detects this
  Duration latest = std::chrono::milliseconds(60);
};

class MemoryTransport;

// The shared state of the MemoryTransports of one process: endpoints by name, and one lock over
// everything. Must outlive its transports.
class MemoryFabric final {
 public:
  explicit MemoryFabric(const WriteFaults& faults = {}) : faults_(faults), random_(faults.seed) {}

  std::unique_ptr<Transport> MakeTransport();

  // The faults of the writes that are posted from now on. May be called from any thread.
  void SetFaults(const WriteFaults& faults);
  // From now on no window closes before ReleaseCloses, as if its peer did not confirm that it
  // writes no more. May be called from any thread.
  void HoldCloses();
  void ReleaseCloses();
  // The number of open windows, and of those whose close was requested and is held. May be called
  // from any thread.
  size_t open_windows() const;
  size_t held_closes() const;

 private:
  friend class MemoryTransport;
  friend class MemoryChannel;

  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }

  mutable std::recursive_mutex mutex_;
  WriteFaults faults_;
  std::mt19937_64 random_;
  std::map<std::string, MemoryTransport*> endpoints_;
  uint64_t next_endpoint_ = 1;
  bool holds_closes_ = false;
};

class MemoryChannel;

// The reference transport: writes are copied within the process, by the receiver's Poll. With
// faults it is the delayed-write transport, which applies writes late, out of order, twice or
// never. It keeps the contract of transport.h: a write that was taken back or fenced never lands.
class MemoryTransport final : public Transport {
 public:
  MemoryTransport(MemoryFabric& fabric, UniqueFd event)
      : fabric_(fabric), event_(std::move(event)) {}
  ~MemoryTransport() override;

  std::string_view name() const override { return "memory"; }
  TransportCaps caps() const override;
  int wait_fd() const override { return event_.get(); }
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  Status OpenWindow(WriteWindow window) override;
  void CloseWindow(uint64_t window_key) override;
  size_t Poll(Time now, std::span<Arrival> arrivals) override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

 private:
  friend class MemoryChannel;
  friend class MemoryFabric;

  // A write that was posted to this endpoint and is not applied yet.
  struct Incoming {
    MemoryChannel* channel = nullptr;  // null: a repetition of an earlier write
    uint64_t op = 0;
    uint32_t region = 0;
    uint64_t window_key = 0;
    uint64_t tag = 0;
    uint64_t granule = 0;
    std::vector<WriteRun> runs;
    std::vector<std::byte> payload;  // of a repetition
    Duration delay{};
    Time due{};
    bool never = false;
    bool torn = false;
  };

  void Signal() const;
  void Apply(Incoming write, Time now);
  // Applies the first half of the write's bytes, and the whole write later.
  void Tear(Incoming write, Time now);
  static void ReadPayload(Incoming& write);
  void CopyIn(const Incoming& write, size_t bytes) const;

  MemoryFabric& fabric_;
  const UniqueFd event_;
  std::string descriptor_;
  WindowTable windows_;
  std::set<uint64_t> open_;         // keys of the open windows
  std::set<uint64_t> held_closes_;  // keys of open windows whose close is held
  std::deque<Incoming> incoming_;
  std::vector<MemoryChannel*> senders_;  // channels of peers to this endpoint
};

}  // namespace baton

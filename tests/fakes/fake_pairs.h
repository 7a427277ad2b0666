#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "kernels/pair_exchange.h"
#include "kernels/staging_pool.h"

namespace baton {

// How the communicators of a FakePairs behave. Like NCCL's: they do not notice a peer that is gone,
// and an abort takes its time, during which they write to staging memory.
struct PairFaults {
  bool connects = true;
  // Whether posts wait, from their begin on, until a later SetFaults lets them go on.
  bool waits = false;
  // The post from which on no post ends; counted over all communicators of the FakePairs.
  int hangs_from = 1 << 30;
  // The post with which a communicator fails.
  int fails_from = 1 << 30;
  // Whether a peer that is gone makes a communicator fail, as over a network; else it hangs.
  bool reports_lost_peer = false;
  Duration abort_time{};
};

// A PairExchange over Unix sockets, in one process or between processes of this host. Each
// communicator moves bytes on a thread of its own. A FakePairs stands for a new device in each call
// of DeviceId, until it is given a name. Thread-safe.
class FakePairs final : public PairExchange {
 public:
  // `memory` allocates staging memory, and must outlive this object.
  explicit FakePairs(Device& memory) : memory_(memory), staging_(memory) {}
  ~FakePairs() override;

  StatusOr<std::string> DeviceId() const override;
  StatusOr<std::string> MakeId() override;
  StatusOr<std::unique_ptr<PairCommunicator>> Make(
      const PairCommunicator::Options& options) override;

  void NameDevice(std::string name);
  // Of all communicators, also of those that exist.
  void SetFaults(const PairFaults& faults);
  // The number of communicators that were made, and of those that exist.
  int made() const { return made_; }
  int alive() const { return alive_; }
  // The number of posts that have not ended, of communicators that were not aborted. A real device
  // runs kernels for them, which wait for the peer.
  std::shared_ptr<const std::atomic<int>> running() const { return running_; }

 private:
  class Communicator;

  PairFaults faults() const;

  Device& memory_;
  mutable std::mutex mutex_;
  std::string name_;
  PairFaults faults_;
  std::atomic<int> made_ = 0;
  std::atomic<int> alive_ = 0;
  std::atomic<int> posts_ = 0;
  const std::shared_ptr<std::atomic<int>> running_ = std::make_shared<std::atomic<int>>(0);
  StagingPool staging_;
};

}  // namespace baton

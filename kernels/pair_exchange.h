#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/device.h"

// Sends a device's memory to another rank in which both ends take part, as NCCL's send and receive.
// The KV transport "nccl" uses this interface and contains no GPU code; the interface is here,
// because the CUDA backend implements it and depends on no transport.
namespace baton {

// One end of a communicator of two ranks that moves bytes in one direction. It moves only staging
// memory of its own, so nothing that its peer does can reach other memory. No call waits for the
// peer. Used by one thread. Destroy it only when has_ended(), because the device may use the
// staging memory until then.
class PairCommunicator {
 public:
  struct Options {
    std::string id;      // of PairExchange::MakeId at the receiving end
    bool sends = false;  // this end sends; the other one receives
    size_t staging_bytes = 0;
  };

  virtual ~PairCommunicator() = default;

  virtual const Buffer& staging() const = 0;
  // Sends `bytes` bytes of the staging memory from `offset` on, or receives them there. The N-th
  // post at one end meets the N-th post at the other end, and both state the same size. Posts wait
  // until both ends are connected. Errors: as for Poll.
  virtual Status Post(uint64_t offset, uint64_t bytes) = 0;
  // The number of posts that have ended since the last call; posts end in their order. Errors:
  // Unavailable with the reason. Then no post ends any more, and Abort must follow. A peer that is
  // gone or stopped is not always an error: posts may simply not end.
  virtual StatusOr<size_t> Poll() = 0;
  // Whether both ends are connected, as of the last Poll.
  virtual bool is_connected() const = 0;
  // Becomes readable when Poll may return something new, but only after WatchEnds. Constant.
  virtual int wait_fd() const = 0;
  // Must be called before waiting for wait_fd(); holds until the next Poll.
  virtual void WatchEnds() = 0;

  // Ends the posts under way at this end. Only has_ended may follow. Does not wait: an abort can
  // take seconds, and it may never end on a device that is lost.
  virtual void Abort() = 0;
  // After Abort: whether the device has stopped using the staging memory.
  virtual bool has_ended() const = 0;
};

// Creates the communicators of one device. Thread-safe. Must outlive the communicators. Must be
// destroyed before main returns, because libraries end their own state then.
class PairExchange {
 public:
  virtual ~PairExchange() = default;
  // Identifies the device among the devices of all hosts. Two ranks need two devices.
  virtual StatusOr<std::string> DeviceId() const = 0;
  // Called at the receiving end. The id is for one communicator; both ends pass it in Options::id.
  // At most kMaxPairIdBytes bytes. Unavailable with the library's reason.
  virtual StatusOr<std::string> MakeId() = 0;
  // Starts to connect and returns. `options.id` may come from a peer and is not trusted. Errors:
  // InvalidArgument for an id that is not one; ResourceExhausted without memory for staging. Other
  // errors are those of the communicator's Poll.
  virtual StatusOr<std::unique_ptr<PairCommunicator>> Make(
      const PairCommunicator::Options& options) = 0;
};

constexpr size_t kMaxPairIdBytes = 256;

}  // namespace baton

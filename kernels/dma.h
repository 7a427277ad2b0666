#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kernels/device.h"
#include "kernels/pair_exchange.h"

// Copies bytes into and out of a GPU's memory while its kernels run, and shares that memory with
// the processes and the network devices of one host. KV transports use this interface and contain
// no GPU code.
namespace baton {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

// `bytes` from offset `source` of one buffer to offset `destination` of another.
struct CopyRun {
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t bytes = 0;
  bool operator==(const CopyRun&) const = default;
};

// The completion of one Copy or Checksum of a DmaQueue.
struct DmaDone {
  uint64_t id = 0;
  Status status;                    // Unavailable: this process has lost the device
  std::vector<uint64_t> checksums;  // of Checksum: one per granule
};

// Asynchronous copies and checksums of one device's memory. Buffers must outlive the work on them.
// Used by one thread. The destructor waits for all posted work.
class DmaQueue {
 public:
  virtual ~DmaQueue() = default;
  // Becomes readable when Poll has a completion, but only after WatchEnds.
  virtual int wait_fd() const = 0;
  // Copies all runs. To and from imported memory, copy engines copy long runs, so that the SMs are
  // left to the steps, and SMs copy short runs. Each of the two buffers is the device's own memory,
  // or imported or staging memory; not both are staging memory.
  // Copies complete in the order in which they were posted. DmaDone returns `id`. After an error,
  // nothing was posted.
  virtual Status Copy(uint64_t id,
                      const Buffer& from,
                      const Buffer& to,
                      std::span<const CopyRun> runs) = 0;
  // Computes the checksum (granule_checksum.h) of each `granule` bytes of the concatenated ranges,
  // whose total must be a multiple of `granule`. Runs concurrently with copies and the kernels of a
  // step. It may not start before the next Poll.
  virtual Status Checksum(uint64_t id,
                          const Buffer& of,
                          std::span<const ByteRange> ranges,
                          uint64_t granule) = 0;
  // Moves completions into `done`; returns their number.
  virtual size_t Poll(std::span<DmaDone> done) = 0;
  // Must be called before waiting for wait_fd(), which then becomes readable when some of the work
  // posted so far has completed or needs a Poll to continue (at once, if that is already so). It
  // holds until the next Poll. A caller that busy-polls does not call it, because a notification
  // costs more than a Poll.
  virtual void WatchEnds() = 0;
};

// A dma-buf of a buffer: Linux's handle with which another device of the host, such as an RDMA
// device, reads and writes the buffer's memory over PCIe.
struct DmaBuf {
  UniqueFd fd;
  uint64_t offset = 0;  // of the buffer's first byte in the dma-buf
};

// The DMA functions of one device for KV transports. Thread-safe. Must outlive its queues and
// imported buffers.
class Dma {
 public:
  virtual ~Dma() = default;
  // Returns a handle with which another process of this host can Import the memory of `buffer`,
  // which was allocated as kShared, or imported. Errors: InvalidArgument for memory that cannot be
  // exported.
  virtual StatusOr<std::string> Export(const Buffer& buffer) = 0;
  // Maps memory that a process of this host (perhaps this one) exported, for use with a DmaQueue,
  // and copies a few bytes of it, so that the first real copy is not slow. The exporting process
  // may end at any time; the memory stays until the mapping is destroyed. Errors: InvalidArgument
  // for something that is not an export; Unavailable when this device cannot access the memory.
  virtual StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) = 0;
  // Allocates host memory to and from which copies run at full speed.
  virtual StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() = 0;

  // The PCI address of the device, as Linux writes it: "0000:3b:00.0".
  virtual StatusOr<std::string> PciAddress() const = 0;
  // The dma-buf of a buffer that was allocated as kShared. Unavailable: the driver or the kernel
  // has none.
  virtual StatusOr<DmaBuf> ExportDmaBuf(const Buffer& buffer) = 0;
  // Makes writes of other PCIe devices into this device's memory, which the host knows to be
  // complete, visible to work that is posted to this device afterwards. Does nothing on devices
  // that need no flush. FailedPrecondition: the device needs a flush and has none.
  virtual Status FlushPeerWrites() = 0;

  // Sends and receives in which both ends take part. Owned by this object. NotFound when the
  // library for them is not installed; FailedPrecondition when its version is too old.
  virtual StatusOr<PairExchange*> Pairs() = 0;
};

}  // namespace baton

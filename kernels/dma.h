#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kernels/device.h"

// What moves bytes in and out of a GPU's memory beside its kernels, and shares that memory between
// the processes of one host. Behind this interface, KV transports serve GPUs without knowing them.
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

// The end of one piece of a DmaQueue's work.
struct DmaDone {
  uint64_t id = 0;
  Status status;                    // Unavailable: the device is lost to this process
  std::vector<uint64_t> checksums;  // of Checksum; one a granule
};

// Work on one device's memory, done in the background. Buffers outlive the work on them. One
// thread. Its destruction waits for what was posted.
class DmaQueue {
 public:
  virtual ~DmaQueue() = default;
  // Readable once Poll has something, if it is watched for: see WatchEnds.
  virtual int wait_fd() const = 0;
  // Copies every run, on copy engines, never on processors. At least one of the two buffers is the
  // device's own; the other may be that, too, or imported, or staging memory. Copies end in the
  // order in which they were posted. `id` comes back in DmaDone; after an error nothing was posted.
  virtual Status Copy(uint64_t id,
                      const Buffer& from,
                      const Buffer& to,
                      std::span<const CopyRun> runs) = 0;
  // The checksum (granule_checksum.h) of each `granule` bytes of the ranges' bytes in their order;
  // granule divides their sum. Runs beside copies and a step's kernels; may wait for the next Poll
  // to start.
  virtual Status Checksum(uint64_t id,
                          const Buffer& of,
                          std::span<const ByteRange> ranges,
                          uint64_t granule) = 0;
  // Takes out what ended; how many.
  virtual size_t Poll(std::span<DmaDone> done) = 0;
  // To be called before wait_fd() is waited for: it becomes readable when some of the work posted
  // so far has ended or may go on, at once if that is so already. It holds until the next Poll. Who
  // calls Poll all the time leaves it out: a notice costs more than a look.
  virtual void WatchEnds() = 0;
};

// What one device offers to KV transports. Thread-safe. Outlives its queues and imported buffers.
class Dma {
 public:
  virtual ~Dma() = default;
  // By which another process of this host can Import the memory of `buffer`, allocated kShared.
  // InvalidArgument: memory that cannot be exported.
  virtual StatusOr<std::string> Export(const Buffer& buffer) = 0;
  // Maps memory that a process of this host exported (perhaps this one), for Copy alone, and moves
  // a little of it, so that the first real copy is not slow. The exporter may die meanwhile; the
  // memory stays until the mapping goes. InvalidArgument: not an export; Unavailable: out of this
  // device's reach.
  virtual StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) = 0;
  // Host memory that copies run to and from at full speed.
  virtual StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() = 0;
};

}  // namespace baton

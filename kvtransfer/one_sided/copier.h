#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/dma.h"
#include "kvtransfer/transport.h"

namespace baton {

// Moves bytes from one local region into one region of a peer, without the peer's help: with copy
// engines (cuda_ipc) or with RDMA WRITE. The peer holds the counterpart, a RemoteAccess. Only
// Connect and the destructor may block. Owned by a OneSidedChannel; its thread only.
class Copier {
 public:
  // Waits until no copy is under way and the local region is not read any more.
  virtual ~Copier() = default;

  // What the peer's RemoteAccess::Open needs, at most kMaxSidebandRecords bytes. May be empty.
  virtual std::string Greeting() const = 0;
  // Makes the peer's region accessible. `access` is what the peer's RemoteAccess::Open returned.
  // Called once, before Copy. Errors: InvalidArgument for something that is not an access;
  // Unavailable when this process cannot reach the memory.
  virtual Status Connect(std::string_view access) = 0;
  // Whether the peer's RemoteAccess::HasLanded is false until every byte of a copy has landed. Then
  // a copy may be reported when it starts. Otherwise HasLanded is always true. Constant.
  virtual bool marks_copies() const = 0;
  // The size of the peer's region in bytes. 0 before Connect.
  virtual uint64_t peer_bytes() const = 0;

  // Starts to copy all runs, from offsets of the local region to offsets of the peer's region. The
  // caller has checked that the runs lie inside both. After an error nothing was started. Else
  // Poll returns a DmaDone with `id` once: OK when the peer has every byte, an error when the end
  // of the copy is not known, so that its bytes may still land. Returns the mark by which the
  // peer's RemoteAccess::HasLanded recognises the copy.
  virtual StatusOr<uint32_t> Copy(uint64_t id, std::span<const WriteRun> runs) = 0;
  // Starts to compute the checksum (kernels/granule_checksum.h) of each `granule` bytes of these
  // ranges of the local region, whose total must be a multiple of `granule`. After an error nothing
  // was started. Else Poll returns a DmaDone with `id` once.
  virtual Status Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) = 0;
  // No Copy follows. Ends copies that are under way early where the hardware can do that. Each of
  // them still gets its DmaDone.
  virtual void Fence() = 0;

  // Moves completions into `done`; returns their number.
  virtual size_t Poll(std::span<DmaDone> done) = 0;
  // Becomes readable when Poll has a completion, but only after WatchEnds. Constant.
  virtual int wait_fd() const = 0;
  // Must be called before waiting for wait_fd(); holds until the next Poll. A caller that
  // busy-polls does not call it, because a notification costs more than a Poll.
  virtual void WatchEnds() = 0;
};

}  // namespace baton

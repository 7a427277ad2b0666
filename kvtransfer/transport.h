#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "kernels/dma.h"

// What moves bytes between two processes. A transport knows no tokens, requests or layers. Nothing
// here blocks, and all calls on one transport, its regions and its channels come from one thread,
// that which waits on wait_fd(). tests/conformance holds every transport to this contract.
namespace baton {

using OpId = StrongId<struct OpIdTag, uint64_t>;

struct TransportCaps {
  bool same_host_only = false;
  bool local_fence = true;  // CloseWindow and Fence need nobody's help and finish at once
  size_t max_op_bytes = 0;
  size_t max_op_runs = 0;
  // What keeps a channel busy: the size of an operation, and of all that are outstanding.
  size_t op_bytes = size_t{1} << 20;
  size_t flight_bytes = size_t{32} << 20;
  // Moving a little all the time costs more than moving much now and then.
  bool prefers_bursts = false;
  size_t max_note_bytes = 0;  // of Channel::PostNote; 0: no notes
};

// From an offset of the channel's local region to an offset of the peer's.
using WriteRun = CopyRun;

// One write operation. The payload is its runs in order. The window key is the right to write; the
// tag is returned in the receiver's Arrival. With granule > 0, which must divide the payload's
// size, both sides compute the checksum of each granule (kernels/granule_checksum.h): of the
// source's bytes (kChecksums), and of those that landed (Arrival).
struct WriteOp {
  std::span<const WriteRun> runs;  // may be empty
  uint64_t window_key = 0;
  uint64_t tag = 0;
  uint64_t granule = 0;
  // Its source's checksums are computed at once, but no byte moves before Channel::Start. Only for
  // channels that prefer bursts.
  bool held = false;
};

// What happened to an accepted operation, or to a Fence. All but kChecksums are terminal.
struct WriteEvent {
  enum class Kind {
    kDone,       // every byte is in place, and the receiver has counted it
    kFailed,     // refused or lost; no byte of it is read from the source any more
    kAborted,    // as kFailed, by RequestAbort or Fence
    kFenced,     // op is 0: the channel is dead, nothing reads the local region through it
    kChecksums,  // once, before kDone, of an operation with a granule: its source's checksums
  };
  OpId op;
  Kind kind = Kind::kDone;
  Status status;
  std::vector<uint64_t> checksums;  // of kChecksums; one a granule
};

// Receiving side: the right of peers who hold `key` to write `ranges` (ascending, disjoint) of a
// region.
struct WriteWindow {
  uint64_t key = 0;
  uint32_t region = 0;
  std::vector<ByteRange> ranges;
};

// Receiving side: what happened to a window.
struct Arrival {
  enum class Kind {
    kArrived,   // one operation's payload is in place
    kNote,      // what the peer had to say through Channel::PostNote
    kClosed,    // last event of a window: no byte can land through it any more
    kUnfenced,  // the close could not be enforced in time: the ranges must not be reused
  };
  Kind kind = Kind::kArrived;
  uint64_t window_key = 0;
  uint32_t region = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;
  std::vector<ByteRange> ranges;    // where the payload went, in its order
  std::vector<uint64_t> checksums;  // one a granule
  std::string note;                 // of kNote
  Status status;
};

// Registered local memory. Its destruction requires that no channel uses it and no window is open.
class Region {
 public:
  virtual ~Region() = default;
  virtual uint32_t id() const = 0;
};

// Writes into one region of one peer. Connecting goes on in the background: operations are accepted
// meanwhile, and fail if it does not succeed. Destruction fences without an event.
class Channel {
 public:
  virtual ~Channel() = default;
  // Accepts the write, which then gets exactly one terminal event; on an error nothing was
  // posted. InvalidArgument: a run outside the local region, sizes that do not fit the granule or
  // the caps, held where bursts are not preferred. ResourceExhausted: too many outstanding.
  // Unavailable: the channel is dead.
  virtual StatusOr<OpId> PostWrite(const WriteOp& op) = 0;
  // Lets a held write begin; of others, and of those that have ended, nothing comes.
  virtual void Start(OpId /*op*/) {}
  // Ends the operation early where that is possible; its terminal event follows either way.
  virtual void RequestAbort(OpId op) = 0;
  // No write through the window is meant to follow: its right is given back, so that the
  // receiver need not ask for it. A write that follows after all gets it again.
  virtual void Release(uint64_t window_key) = 0;
  // Says `note` to the receiver, of a window that the channel has written through: sooner heard
  // than what comes another way, by threads that look after the writes anyway. Nothing comes of
  // it here, and it is lost with the channel. False: not taken (too long, no such window).
  virtual bool PostNote(uint64_t /*window_key*/, std::string_view /*note*/) { return false; }
  // Kills the channel: every outstanding operation gets kAborted, then kFenced comes.
  virtual void Fence() = 0;
  // Moves things forward and takes out events; how many.
  virtual size_t Poll(Time now, std::span<WriteEvent> events) = 0;
  // OK, or why the channel is dead.
  virtual Status status() const = 0;
  // Whether Poll is best called again at once: something is about to begin or end, of which a
  // thread that sleeps until wait_fd() would hear tens of microseconds late.
  virtual bool wants_poll() const { return false; }
  // How fast bytes have moved lately while any did; 0: not known, or not measured.
  virtual double bytes_per_second() const { return 0; }
};

// One kind of transport in one process: endpoint for peers' writes, and maker of channels.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual TransportCaps caps() const = 0;
  // Readable whenever Poll, of the transport or of one of its channels, may have something to do.
  virtual int wait_fd() const = 0;

  // `buffer` outlives the region. Errors: memory this transport cannot serve.
  virtual StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) = 0;

  // Receiving side. Starts to listen (once); the opaque, versioned descriptor for HELLO.
  virtual StatusOr<std::string> Listen() = 0;
  // InvalidArgument for ranges outside the region or not ascending; AlreadyExists for a known key.
  virtual Status OpenWindow(WriteWindow window) = 0;
  // kClosed follows, exactly once, if need be after a kUnfenced and perhaps never then; an unknown
  // key is ignored.
  virtual void CloseWindow(uint64_t window_key) = 0;
  // Serves peers, a bounded amount of work, and takes out arrivals in the order they happened. To
  // be called at least every second: `now` serves the time-outs of silent peers.
  virtual size_t Poll(Time now, std::span<Arrival> arrivals) = 0;

  // Sending side. OK when `descriptor` is understood and the peer behind it seems within reach. The
  // one method that may be called from any thread.
  virtual Status Reaches(std::string_view descriptor) const = 0;
  // A channel from `local` to region `peer_region` behind `descriptor`.
  virtual StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                                     std::string_view descriptor,
                                                     uint32_t peer_region) = 0;
};

}  // namespace baton

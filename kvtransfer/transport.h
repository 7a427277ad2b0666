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

// The contract of a transport, which moves bytes between two processes. A transport knows no
// tokens, requests or layers. No call blocks. All calls on one transport, its regions and its
// channels come from one thread, the thread that waits on wait_fd(). tests/conformance checks every
// transport against this contract.
namespace baton {

using OpId = StrongId<struct OpIdTag, uint64_t>;

struct TransportCaps {
  size_t max_op_bytes = 0;
  size_t max_op_runs = 0;
  // Enough to keep a channel busy: bytes of one operation, and bytes of all outstanding operations.
  size_t op_bytes = size_t{1} << 20;
  size_t flight_bytes = size_t{32} << 20;
  // A few large bursts cost less than a steady trickle of the same bytes.
  bool prefers_bursts = false;
  // The receiver itself keeps TransportOptions::receive_bytes_per_second. Otherwise the sender must
  // keep the rate that it was granted.
  bool receiver_paces = false;
  size_t max_note_bytes = 0;  // largest note of Channel::PostNote; 0: takes no notes
  // Both ends busy-poll while something is about to end, and for SEAL. It pays where GPUs compute
  // and processors are idle. Where processors compute, busy threads take them from the steps, and
  // from the threads for which they wait.
  bool busy_polls = false;
};

// Whether both ends busy-poll for a SEAL that comes as a note.
inline bool PollsForSeal(const TransportCaps& caps) {
  return caps.busy_polls && caps.max_note_bytes > 0;
}

// Copies from an offset of the channel's local region to an offset of the peer's region.
using WriteRun = CopyRun;

// One write operation. The payload is its runs in order. The window key is the right to write; the
// tag is returned in the receiver's Arrival. With granule > 0, which must divide the payload's
// size, both sides compute the checksum of each granule (kernels/granule_checksum.h): the sender of
// the source's bytes (kChecksums), the receiver of the bytes that landed (Arrival).
struct WriteOp {
  std::span<const WriteRun> runs;  // may be empty
  uint64_t window_key = 0;
  uint64_t tag = 0;
  uint64_t granule = 0;
  // A held write: the checksums of its source are computed at once, but no byte moves before
  // Channel::Start. Only for transports that prefer bursts.
  bool held = false;
};

// An event of an accepted operation, or of a Fence. Every kind but kChecksums is terminal.
struct WriteEvent {
  enum class Kind {
    kDone,       // every byte is in place, and the receiver has counted it
    kFailed,     // refused or lost; its source is not read any more
    kAborted,    // as kFailed, because of RequestAbort or Fence
    kFenced,     // op is 0: the channel is dead and no longer reads the local region
    kChecksums,  // once, before kDone, if granule > 0: the source's checksums
  };
  OpId op;
  Kind kind = Kind::kDone;
  Status status;
  std::vector<uint64_t> checksums;  // of kChecksums: one per granule
};

// Receiving side: peers that hold `key` may write `ranges` (ascending, disjoint) of a region.
struct WriteWindow {
  uint64_t key = 0;
  uint32_t region = 0;
  std::vector<ByteRange> ranges;
  // The worker that will write: its connected channels need not ask for the window. 0: not known.
  BootId peer = {};
};

// Receiving side: an event of a window.
struct Arrival {
  enum class Kind {
    kArrived,   // the payload of one operation is in place
    kNote,      // the peer sent a note (Channel::PostNote)
    kClosed,    // last event of a window: no byte can land through it any more
    kUnfenced,  // the close could not be enforced in time: the ranges must not be reused
  };
  Kind kind = Kind::kArrived;
  uint64_t window_key = 0;
  uint32_t region = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;
  // Where the payload was written, in payload order; no range continues the one before it.
  std::vector<ByteRange> ranges;
  std::vector<uint64_t> checksums;  // one per granule
  std::string note;                 // of kNote
  Status status;
};

// Registered local memory. It may be destroyed only when no channel uses it and no window is open.
class Region {
 public:
  virtual ~Region() = default;
  virtual uint32_t id() const = 0;
};

// Writes into one region of one peer. The channel connects in the background. It accepts operations
// meanwhile; they fail if connecting fails. The destructor fences, without an event.
class Channel {
 public:
  virtual ~Channel() = default;
  // Accepts the write. An accepted write gets exactly one terminal event; after an error nothing
  // was posted. InvalidArgument: a run outside the local region, sizes that do not fit the granule
  // or the caps, a held write where bursts are not preferred. ResourceExhausted: too many
  // operations are outstanding. Unavailable: the channel is dead.
  virtual StatusOr<OpId> PostWrite(const WriteOp& op) = 0;
  // Lets a held write begin to move. Does nothing for other operations and for ended ones.
  virtual void Start(OpId /*op*/) {}
  // Ends the operation early where that is possible. Its terminal event follows in any case.
  virtual void RequestAbort(OpId op) = 0;
  // States that no further write through the window is planned. The channel gives the right to
  // write back, so that the receiver need not ask for it when it closes the window. A later write
  // obtains the right again.
  virtual void Release(uint64_t window_key) = 0;
  // Sends an out-of-band message to the receiver on the data channel, for lower latency than the
  // control stream. The channel must have the window. The note may wait for the Release that
  // follows, or for the next Poll. No event follows here, and the note is lost if the channel dies.
  // False: the note was not accepted (too long, no such window).
  virtual bool PostNote(uint64_t /*window_key*/, std::string_view /*note*/) { return false; }
  // Kills the channel: every outstanding operation gets kAborted, then kFenced follows.
  virtual void Fence() = 0;
  // Makes progress and moves up to events.size() events into `events`. Returns their number.
  virtual size_t Poll(Time now, std::span<WriteEvent> events) = 0;
  // OK, or the reason why the channel is dead.
  virtual Status status() const = 0;
  // Whether the caller should call Poll again at once. Something is about to begin or end, and a
  // thread that sleeps on wait_fd() would notice it tens of microseconds late. Or messages wait,
  // because what the caller does with the events of this Poll may go with them.
  virtual bool wants_poll() const { return false; }
  // The recent transfer rate, over the time during which bytes moved. 0: unknown or not measured.
  virtual double bytes_per_second() const { return 0; }
};

// One kind of transport in one process: the endpoint for peers' writes, and the factory of
// channels.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual TransportCaps caps() const = 0;
  // Readable whenever Poll of the transport or of one of its channels may have work.
  virtual int wait_fd() const = 0;

  // `buffer` must outlive the region. Errors: the transport cannot access this memory.
  virtual StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) = 0;

  // Receiving side. Starts to listen (call it once). Returns the opaque, versioned descriptor that
  // HELLO carries.
  virtual StatusOr<std::string> Listen() = 0;
  // InvalidArgument for ranges outside the region or not ascending; AlreadyExists for a known key.
  virtual Status OpenWindow(WriteWindow window) = 0;
  // Replaces TransportOptions::receive_bytes_per_second from now on. Does nothing where the
  // receiver does not pace (TransportCaps).
  virtual void SetReceiveRate(uint64_t /*bytes_per_second*/) {}
  // Exactly one kClosed follows. If the close cannot be enforced in time, kUnfenced comes, and
  // kClosed comes later or never. An unknown key is ignored.
  virtual void CloseWindow(uint64_t window_key) = 0;
  // Serves peers, a bounded amount of work, and moves arrivals into `arrivals` in the order in
  // which they happened; returns their number. Must be called at least once a second, because the
  // time-outs of silent peers are checked against `now` here.
  virtual size_t Poll(Time now, std::span<Arrival> arrivals) = 0;

  // Sending side. OK when `descriptor` is understood and its endpoint appears reachable. The only
  // method that may be called from any thread.
  virtual Status Reaches(std::string_view descriptor) const = 0;
  // A channel that writes from `local` into region `peer_region` of the endpoint `descriptor`.
  virtual StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                                     std::string_view descriptor,
                                                     uint32_t peer_region) = 0;
};

}  // namespace baton

#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/device.h"

namespace baton {

// The access of one peer to the memory of this process, and the proof of its end: the counterpart
// of the peer's Copier. No call blocks. Owned by a OneSidedReceiver, from the peer's connection
// until the peer can write no more; its thread only. The destructor takes the access back.
class RemoteAccess {
 public:
  virtual ~RemoteAccess() = default;

  // The peer's name in log lines, such as "process 4711".
  virtual const std::string& peer() const = 0;
  // Lets the peer write into `memory`, which must outlive this object. `greeting` is what the
  // peer's Copier::Greeting returned; it is not trusted. Returns what that copier's Connect needs,
  // at most kMaxSidebandRecords bytes. Called once. Errors: InvalidArgument for a greeting that is
  // not valid or memory that cannot be shared.
  virtual StatusOr<std::string> Open(const Buffer& memory, std::string_view greeting) = 0;
  // Whether the bytes of a copy that the peer reported as ended are in this process's memory, where
  // they can be read and where none of them can land later. `mark` is what the peer's Copier::Copy
  // returned; it is not trusted. If false, wait_fd() becomes readable when the answer may change.
  virtual bool HasLanded(uint32_t mark) = 0;
  // Takes the access back for ever, as far as this process can do that without the peer. True: no
  // byte of the peer can land any more. Called when the peer's connection ends without kBye, and in
  // every Poll of the transport after that until it returns true. Also called when the peer does
  // not confirm a close within the fence time-out.
  virtual bool Revoke() = 0;
  // Becomes readable when Revoke or HasLanded, which returned false, may return true. It may stay
  // readable after that, so it is watched edge-triggered. Owned by this object and constant.
  virtual int wait_fd() const = 0;
};

}  // namespace baton

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/socket_control.h"
#include "tests/conformance/transfer_peer.h"

namespace baton {

// How a hand-off goes if nothing disturbs it.
enum class HandoffCourse {
  kCommits,
  kIsRefused,
  kIsWithdrawn,  // aborted before the grant
  kIsAborted,    // aborted while blocks move
  kHangs,        // aborted while the sender's device holds all copies back
};

// One side of hand-offs, with a KvSender or a KvReceiver that outlives its peers. For tests in
// which the process of the other side ends, or stops for a while, in each state of a session.
class StatePeer final {
 public:
  struct Setup {
    bool is_sender = false;
    std::string transport;  // cuda_ipc and nccl: on a fake GPU; the others: on the CPU
    HandoffCourse course = HandoffCourse::kCommits;
    // As KvTransferOptions::on_state.
    std::function<void(std::string_view state)> on_state;
  };

  // Throws what the transport refuses.
  explicit StatePeer(Setup setup);
  ~StatePeer();

  // Connects to the other side over a control socket. A sender offers the session. An earlier peer
  // must have been disconnected.
  void Begin(UniqueFd socket, SessionId session);
  // Lets the copies go on that a hand-off with the course kHangs has held back.
  void ReleaseCopies();
  // Lets the course of the next hand-offs be this one.
  void SetCourse(HandoffCourse course) { setup_.course = course; }
  // Waits until the session has ended once and nothing is under way or in quarantine, for at most
  // 20 seconds. Returns what is wrong, or an empty text.
  std::string WaitQuiet(SessionId session);
  void Disconnect();
  bool committed(SessionId session) const { return logs_.Get(session).committed; }
  // Receiver: what differs from a hand-off of the sender's blocks into the granted blocks, with no
  // byte elsewhere; or an empty text.
  std::string CompareContent() const;

 private:
  class Sending;
  class Receiving;

  KvTransferStats Stats() const;
  KvTransferOptions MakeOptions();
  void Offer(SessionId session);

  Setup setup_;
  PeerDevice device_;
  TestMemory arena_;
  SessionLogs logs_;
  std::unique_ptr<Sending> sending_;
  std::unique_ptr<Receiving> receiving_;
  std::unique_ptr<SocketControl> control_;
};

}  // namespace baton

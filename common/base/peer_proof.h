#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/message_mac.h"
#include "common/base/status.h"

namespace baton {

enum class PeerSide { kDialler, kListener };

// One end of the handshake in which two processes of a cluster prove to each other, at the start of
// a connection, who they are. Carries no I/O: its owner moves the messages, each of exactly
// kPeerProofBytes bytes. Not thread-safe.
class PeerProof {
 public:
  virtual ~PeerProof() = default;

  // The dialler's first message. To be called once, and only by the dialler.
  virtual std::string Begin() = 0;
  // Handles the peer's next message and returns the answer, which is empty when nothing is to be
  // sent. Unauthenticated when the peer has not proven itself; the message then says what to do.
  virtual StatusOr<std::string> OnMessage(std::string_view message) = 0;
  // True when the peer has proven itself. Nothing that the peer sent may be used before.
  virtual bool done() const = 0;
  // When done(): the MAC for what the end `from` sends on this connection after the handshake. Both
  // ends make it, each once for either direction. Its key is known only to processes that know the
  // secret, and is of no use on another connection.
  virtual std::unique_ptr<MessageMac> MakeMac(PeerSide from) const = 0;
};

inline constexpr size_t kPeerProofBytes = 40;
// The first bytes of each message, which distinguish a handshake from other protocols.
inline constexpr std::string_view kPeerProofMagic = "BHS1";

// Makes the proofs of a process' internal connections. Thread-safe.
class PeerProofs {
 public:
  virtual ~PeerProofs() = default;

  // `purpose` names the protocol of the connection, so that a proof is of no use on another port.
  virtual std::unique_ptr<PeerProof> Make(PeerSide side, std::string_view purpose) const = 0;
  // Counts a peer that was refused, and logs it (not each one of many).
  virtual void OnRefused(std::string_view purpose,
                         std::string_view peer,
                         const Status& why) const = 0;
};

}  // namespace baton

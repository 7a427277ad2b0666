#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/peer_proof.h"
#include "common/security/cluster_secret.h"

namespace baton {

// Proves that both ends know the cluster's secret, without sending it:
//   1. dialler → listener: hello, the dialler's nonce
//   2. listener → dialler: challenge, the listener's nonce
//   3. dialler → listener: HMAC(secret, purpose, "dialler", both nonces)
//   4. listener → dialler: HMAC(secret, purpose, "listener", both nonces)
// A message is "BHS1", its number as one byte, three zero bytes, and 32 bytes. The listener proves
// itself last, so that a stranger learns nothing from it. Nonces are random, so a recorded
// handshake cannot be replayed; the two sides have different labels, so a proof cannot be
// reflected; the purpose makes a proof useless on another kind of connection. An attacker who can
// change packets between two members may still take the connection after the handshake, unless TLS
// or MakeMac's tags prevent that. MakeMac's keys are HKDF(secret, both nonces, purpose, direction).
class SecretProof final : public PeerProof {
 public:
  SecretProof(std::shared_ptr<const ClusterSecret> secret, PeerSide side, std::string_view purpose);

  std::string Begin() override;
  StatusOr<std::string> OnMessage(std::string_view message) override;
  bool done() const override { return proven_ != nullptr; }
  std::unique_ptr<MessageMac> MakeMac(PeerSide from) const override;

 private:
  // The purpose and both nonces, after the label of a side.
  std::string Transcript(std::string_view protocol, PeerSide side) const;
  std::string Proof(std::string_view secret, PeerSide side) const;
  // The accepted secret that `proof` of that side proves, or null.
  const std::string* Proven(std::string_view proof, PeerSide side) const;
  StatusOr<std::string> AsListener(uint8_t number, std::string_view value);
  StatusOr<std::string> AsDialler(uint8_t number, std::string_view value);

  const std::shared_ptr<const ClusterSecret> secret_;
  const PeerSide side_;
  const std::string purpose_;
  std::string own_nonce_;
  std::string peer_nonce_;
  uint8_t expected_;                     // the number of the peer's next message; 0: none
  const std::string* proven_ = nullptr;  // the secret that the peer has proven; in secret_
};

}  // namespace baton

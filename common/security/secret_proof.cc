#include "common/security/secret_proof.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/security/digest.h"
#include "common/security/gmac.h"

namespace baton {
namespace {

constexpr size_t kNonceBytes = 32;
constexpr size_t kHeadBytes = kPeerProofBytes - kNonceBytes;
constexpr uint8_t kHello = 1;
constexpr uint8_t kChallenge = 2;
constexpr uint8_t kDiallerProof = 3;
constexpr uint8_t kListenerProof = 4;
constexpr std::string_view kProtocol = "baton peer proof 1";
constexpr std::string_view kMacProtocol = "baton peer mac 1";

std::string MessageOf(uint8_t number, std::string_view value) {
  std::string message(kPeerProofMagic);
  message.push_back(static_cast<char>(number));
  message.append(3, '\0');
  message.append(value);
  return message;
}

Status Unauthenticated(std::string_view message) {
  return Status(StatusCode::kUnauthenticated, std::string(message));
}

}  // namespace

SecretProof::SecretProof(std::shared_ptr<const ClusterSecret> secret,
                         PeerSide side,
                         std::string_view purpose)
    : secret_(std::move(secret)),
      side_(side),
      purpose_(purpose),
      own_nonce_(RandomBytes(kNonceBytes)),
      expected_(side == PeerSide::kDialler ? kChallenge : kHello) {}

std::string SecretProof::Begin() {
  return MessageOf(kHello, own_nonce_);
}

// Each part has a fixed size or is preceded by its length, so that no two inputs are the same
// bytes.
std::string SecretProof::Transcript(std::string_view protocol, PeerSide side) const {
  const bool dials = side_ == PeerSide::kDialler;
  std::string bytes(protocol);
  bytes.push_back(side == PeerSide::kDialler ? 'D' : 'L');
  bytes.push_back(static_cast<char>(purpose_.size()));
  bytes += purpose_;
  bytes += dials ? own_nonce_ : peer_nonce_;
  bytes += dials ? peer_nonce_ : own_nonce_;
  return bytes;
}

std::string SecretProof::Proof(std::string_view secret, PeerSide side) const {
  return std::string(BytesOf(HmacSha256(secret, Transcript(kProtocol, side))));
}

std::unique_ptr<MessageMac> SecretProof::MakeMac(PeerSide from) const {
  BATON_CHECK(done(), "a MAC for a peer that has not proven itself");
  const bool dials = side_ == PeerSide::kDialler;
  const std::string nonces = dials ? own_nonce_ + peer_nonce_ : peer_nonce_ + own_nonce_;
  return std::make_unique<Gmac>(
      BytesOf(HkdfSha256(*proven_, nonces, Transcript(kMacProtocol, from))));
}

const std::string* SecretProof::Proven(std::string_view proof, PeerSide side) const {
  const auto& secrets = secret_->accepted();
  const auto found = std::find_if(secrets.begin(), secrets.end(), [&](const std::string& secret) {
    return EqualSecrets(proof, Proof(secret, side));
  });
  return found == secrets.end() ? nullptr : &*found;
}

StatusOr<std::string> SecretProof::OnMessage(std::string_view message) {
  if (message.size() != kPeerProofBytes || !message.starts_with(kPeerProofMagic)) {
    return Unauthenticated(
        "the peer did not prove that it knows the cluster's secret; set "
        "security.cluster_secret_file of all routers and workers to files with the same secret");
  }
  const auto number = static_cast<uint8_t>(message[kPeerProofMagic.size()]);
  const std::string_view value = message.substr(kHeadBytes);
  if (number != expected_) {
    return Unauthenticated(
        fmt::format("the peer sent handshake message {}; {} was expected", number, expected_));
  }
  return side_ == PeerSide::kDialler ? AsDialler(number, value) : AsListener(number, value);
}

StatusOr<std::string> SecretProof::AsListener(uint8_t number, std::string_view value) {
  if (number == kHello) {
    peer_nonce_ = value;
    expected_ = kDiallerProof;
    return MessageOf(kChallenge, own_nonce_);
  }
  expected_ = 0;
  const std::string* const secret = Proven(value, PeerSide::kDialler);
  if (secret == nullptr) {
    return Unauthenticated(
        "the peer has another cluster secret; compare the files that security.cluster_secret_file "
        "of both processes names, for example by sha256sum");
  }
  proven_ = secret;
  return MessageOf(kListenerProof, Proof(*secret, PeerSide::kListener));
}

StatusOr<std::string> SecretProof::AsDialler(uint8_t number, std::string_view value) {
  if (number == kChallenge) {
    peer_nonce_ = value;
    expected_ = kListenerProof;
    return MessageOf(kDiallerProof, Proof(secret_->own(), PeerSide::kDialler));
  }
  expected_ = 0;
  const std::string* const secret = Proven(value, PeerSide::kListener);
  if (secret == nullptr) {
    return Unauthenticated(
        "the process that was dialled did not prove the cluster's secret; the address may belong "
        "to another cluster");
  }
  proven_ = secret;
  return std::string();
}

}  // namespace baton

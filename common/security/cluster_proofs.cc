#include "common/security/cluster_proofs.h"

#include "common/security/secret_proof.h"

namespace baton {

std::unique_ptr<PeerProof> ClusterProofs::Make(PeerSide side, std::string_view purpose) const {
  return std::make_unique<SecretProof>(file_ == nullptr ? secret_ : file_->Get(), side, purpose);
}

}  // namespace baton

#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "common/base/peer_proof.h"
#include "common/security/cluster_secret.h"
#include "common/security/refusals.h"
#include "common/security/secret_file.h"

namespace baton {

// The proofs of a process that has the cluster's secret. Thread-safe.
class ClusterProofs final : public PeerProofs {
 public:
  // With a secret that does not change.
  ClusterProofs(ClusterSecret secret, std::shared_ptr<Refusals> refusals)
      : secret_(std::make_shared<const ClusterSecret>(std::move(secret))),
        refusals_(std::move(refusals)) {}
  // With the secret of a file.
  ClusterProofs(std::unique_ptr<SecretFile> file, std::shared_ptr<Refusals> refusals)
      : refusals_(std::move(refusals)), file_(std::move(file)) {}

  std::unique_ptr<PeerProof> Make(PeerSide side, std::string_view purpose) const override;
  void OnRefused(std::string_view purpose,
                 std::string_view peer,
                 const Status& why) const override {
    refusals_->Add(purpose, peer, why);
  }

 private:
  const std::shared_ptr<const ClusterSecret> secret_;
  const std::shared_ptr<Refusals> refusals_;
  const std::unique_ptr<SecretFile> file_;  // null when the secret does not change
};

}  // namespace baton

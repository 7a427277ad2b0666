#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "common/base/peer_proof.h"
#include "common/security/cluster_secret.h"
#include "common/security/refusals.h"

namespace baton {

// The proofs of a process that has the cluster's secret. Thread-safe.
class ClusterProofs final : public PeerProofs {
 public:
  ClusterProofs(ClusterSecret secret, std::shared_ptr<Refusals> refusals)
      : secret_(std::make_shared<const ClusterSecret>(std::move(secret))),
        refusals_(std::move(refusals)) {}

  std::unique_ptr<PeerProof> Make(PeerSide side, std::string_view purpose) const override;
  void OnRefused(std::string_view purpose,
                 std::string_view peer,
                 const Status& why) const override {
    refusals_->Add(purpose, peer, why);
  }

 private:
  const std::shared_ptr<const ClusterSecret> secret_;
  const std::shared_ptr<Refusals> refusals_;
};

}  // namespace baton

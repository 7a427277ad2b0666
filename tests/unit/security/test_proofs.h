#pragma once

#include <memory>
#include <string>

#include "common/security/cluster_proofs.h"

namespace baton {

inline const std::string kSecret = "the-secret-of-this-test-cluster-1";

// The proofs of a process that has `secret`; null if that is empty.
inline std::shared_ptr<const PeerProofs> ProofsOf(const std::string& secret,
                                                  const std::shared_ptr<Refusals>& refusals) {
  if (secret.empty()) return nullptr;
  return std::make_shared<ClusterProofs>(ClusterSecret::Parse(secret).value(), refusals);
}

}  // namespace baton

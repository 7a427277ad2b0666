#pragma once

#include <cstdint>
#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"

namespace baton {

// What every rank of a group must have in common, and the first message of a follower to its
// leader.
struct RankHello {
  int rank = 0;
  std::string program;      // name, version and build
  std::string settings;     // the whole configuration as YAML
  std::string fingerprint;  // of the model
  // The rank's part of the hash of all weights (common/model/weights_hash.h), which the leader
  // sums.
  Hash128 weights;
  std::string device;
  int32_t blocks = 0;  // KV blocks that the rank can hold

  std::string ToJson() const;
  // InvalidArgument for text that ToJson did not write.
  static StatusOr<RankHello> FromJson(const std::string& text);
};

// OK when `theirs` may compute with `ours`: equal programs, settings and fingerprints. Else
// FailedPrecondition that names the rank and prints both sides; of the settings, the first line
// that differs.
Status CheckSameGroup(const RankHello& ours, const RankHello& theirs);

}  // namespace baton

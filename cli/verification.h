#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/cluster_client.h"
#include "common/base/status.h"

namespace baton {

// The workers of one run of a request.
struct RunWorkers {
  std::string prefill;  // empty: the decode worker serves alone
  std::string decode;

  auto operator<=>(const RunWorkers&) const = default;
};

// The workers of the two runs of each request of `baton verify`. Request i runs on Runs(i).
class VerificationPlan final {
 public:
  // A plan with the ready workers of `workers`. Errors: FailedPrecondition when these offer only
  // one way to serve a request.
  static StatusOr<VerificationPlan> Make(const std::vector<WorkerSummary>& workers);

  // The two runs differ in the decode worker and, where possible, in the prefill worker. With one
  // decode worker, they differ in the prefill worker, or the second run is served alone.
  std::pair<RunWorkers, RunWorkers> Runs(size_t request) const;
  // The fewest requests whose runs use every decode worker.
  size_t decode_workers() const { return decode_.size(); }
  // The workers that are not checked because they are not ready, with their states.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  RunWorkers RunOn(size_t number) const;

  std::vector<std::string> prefill_;
  std::vector<std::string> decode_;
  std::vector<std::string> left_out_;
};

// Where the two outputs of one request differ first; nullopt: they are equal. Text such as "token
// 17: 42 / 99", where positions count from 0.
std::optional<std::string> DifferenceOf(const PinnedAnswer& first, const PinnedAnswer& second);

// The comparison of one request.
struct VerifiedRequest {
  std::pair<RunWorkers, RunWorkers> runs;
  std::optional<std::string> difference;
};

// A table with one row for each two pairs of workers.
std::string FormatVerification(const std::vector<VerifiedRequest>& requests);

}  // namespace baton

#include "cli/verification.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/format.h"

namespace baton {
namespace {

std::string TextOf(const RunWorkers& run) {
  return run.prefill.empty() ? run.decode + " alone" : run.prefill + " → " + run.decode;
}

std::string TokenAt(const std::vector<int32_t>& tokens, size_t position) {
  return position < tokens.size() ? fmt::format("{}", tokens[position]) : "end";
}

}  // namespace

StatusOr<VerificationPlan> VerificationPlan::Make(const std::vector<WorkerSummary>& workers) {
  VerificationPlan plan;
  for (const WorkerSummary& worker : workers) {
    if (worker.state != "ready") {
      plan.left_out_.push_back(fmt::format("{} ({})", worker.id, worker.state));
      continue;
    }
    if (worker.roles.find("prefill") != std::string::npos) plan.prefill_.push_back(worker.id);
    if (worker.roles.find("decode") != std::string::npos) plan.decode_.push_back(worker.id);
  }
  if (plan.decode_.empty()) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "no decode worker is ready; `baton status` shows the workers");
  }
  const auto [first, second] = plan.Runs(0);
  if (first == second) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "only worker {} is ready; a comparison needs a second worker",
                      first.decode);
  }
  return plan;
}

// The workers are used in turn. A worker with both roles never has both parts of one request.
RunWorkers VerificationPlan::RunOn(size_t number) const {
  RunWorkers run{"", decode_[number % decode_.size()]};
  for (size_t i = 0; i < prefill_.size() && run.prefill.empty(); ++i) {
    const std::string& prefill = prefill_[(number + i) % prefill_.size()];
    if (prefill != run.decode) run.prefill = prefill;
  }
  return run;
}

std::pair<RunWorkers, RunWorkers> VerificationPlan::Runs(size_t request) const {
  const RunWorkers first = RunOn(request);
  RunWorkers second = RunOn(request + 1);
  if (second == first) second.prefill.clear();
  return {first, second};
}

std::optional<std::string> DifferenceOf(const PinnedAnswer& first, const PinnedAnswer& second) {
  const auto at = std::mismatch(
      first.tokens.begin(), first.tokens.end(), second.tokens.begin(), second.tokens.end());
  const auto position = static_cast<size_t>(at.first - first.tokens.begin());
  if (first.tokens != second.tokens) {
    return fmt::format("token {}: {} / {}",
                       position,
                       TokenAt(first.tokens, position),
                       TokenAt(second.tokens, position));
  }
  if (first.finish != second.finish) {
    return fmt::format("end: {} / {}", first.finish, second.finish);
  }
  return std::nullopt;
}

std::string FormatVerification(const std::vector<VerifiedRequest>& requests) {
  struct Row {
    int requests = 0;
    int different = 0;
    std::string first;  // the first difference
  };
  std::map<std::pair<RunWorkers, RunWorkers>, Row> rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    Row& row = rows[requests[i].runs];
    ++row.requests;
    if (!requests[i].difference.has_value()) continue;
    if (row.different++ == 0) row.first = fmt::format("request {}, {}", i, *requests[i].difference);
  }
  std::vector<std::vector<std::string>> table = {
      {"FIRST RUN", "SECOND RUN", "REQUESTS", "EQUAL", "DIFFERENT", "FIRST DIFFERENCE"}};
  for (const auto& [runs, row] : rows) {
    table.push_back({TextOf(runs.first),
                     TextOf(runs.second),
                     fmt::format("{}", row.requests),
                     fmt::format("{}", row.requests - row.different),
                     fmt::format("{}", row.different),
                     row.different == 0 ? "-" : row.first});
  }
  return FormatTable(table);
}

}  // namespace baton

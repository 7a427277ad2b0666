#include "common/worker/join_problems.h"

#include <algorithm>

#include "common/log/log.h"

namespace baton {
namespace {

const Logger kLog("worker");

}  // namespace

bool JoinProblems::Note(const std::string& router, const Status& why, Time now) {
  std::lock_guard lock(mutex_);
  Problem& problem = problems_[router];
  ++problem.attempts;
  if (problem.why != Message(why)) {
    problem.why = std::string(Message(why));
    problem.pause = kFirstPause;
  } else if (now < problem.next_line) {
    return false;
  } else {
    problem.pause = std::min(kLongestPause, 2 * problem.pause);
  }
  problem.next_line = now + problem.pause;
  kLog.Warning("cannot join router {} (attempt {}; will try again): {}",
               router,
               problem.attempts,
               problem.why);
  return true;
}

void JoinProblems::Forget(const std::string& router) {
  std::lock_guard lock(mutex_);
  problems_.erase(router);
}

std::string JoinProblems::ToString() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [router, problem] : problems_) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", router, problem.why);
  }
  return text;
}

}  // namespace baton

#include "common/base/check.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

namespace baton {
namespace {

constexpr int kPrintLimitMillis = 1000;  // the longest wait for stderr to accept the message

}  // namespace

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  const std::string text =
      fmt::format("{}:{}: invariant broken: {} ({})", file, line, condition, message)
          .substr(0, PIPE_BUF - 1) +
      "\n";
  // The wait is bounded, because a full pipe that nobody reads must not keep the process alive.
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, kPrintLimitMillis) > 0) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  std::abort();
}

}  // namespace baton

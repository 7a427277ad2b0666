#include "common/security/refusals.h"

#include "common/log/log.h"

namespace baton {
namespace {

constexpr Duration kPause = std::chrono::minutes(1);
// Reasons that contain a client's bytes could otherwise fill the memory.
constexpr size_t kMaxKinds = 256;

const Logger kLog("security");

}  // namespace

void Refusals::Add(std::string_view port, std::string_view peer, const Status& why) {
  probe_.OnRefused(port);
  const Time now = SteadyClock().Now();
  int64_t unlogged = 0;
  {
    std::lock_guard lock(mutex_);
    if (kinds_.size() >= kMaxKinds) kinds_.clear();
    Kind& kind = kinds_[fmt::format("{} {}", port, Message(why))];
    if (now < kind.next_line) {
      ++kind.unlogged;
      return;
    }
    unlogged = std::exchange(kind.unlogged, 0);
    kind.next_line = now + kPause;
  }
  kLog.Warning("{}: refused {}: {}{}",
               port,
               peer,
               Message(why),
               unlogged > 0 ? fmt::format(" ({} more since the last such line)", unlogged) : "");
}

}  // namespace baton

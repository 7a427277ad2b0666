#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/security/authenticator.h"
#include "router/core/service_time.h"
#include "router/types.h"

namespace baton::router {

// A budget that refills at `rate` units a second, up to what one second gives, at least one unit. A
// cost that is known only afterwards may take it below zero. Not thread-safe.
class RateBudget final {
 public:
  // The most units that the budget ever has.
  static double Most(double rate) { return std::max(1.0, rate); }
  // The time until the budget is positive; zero: now. rate 0: no limit.
  Duration Wait(double rate, Time now);
  void Take(double cost) { level_ -= cost; }

 private:
  double level_ = 0;
  Time last_{};
  bool used_ = false;
};

class CallerLimits;

// What a caller has used since the router's start.
struct CallerUsage {
  std::string id;
  int64_t running = 0;
  int64_t requests = 0;
  int64_t tokens = 0;
  std::map<StatusCode, int64_t> errors;
};

// One request of a caller who has a key. The destructor ends the request.
class CallerTicket final {
 public:
  CallerTicket(CallerLimits& limits, Caller caller, int32_t prompts, Time began)
      : limits_(limits), caller_(std::move(caller)), prompts_(prompts), began_(began) {}
  ~CallerTicket();
  CallerTicket(const CallerTicket&) = delete;
  CallerTicket& operator=(const CallerTicket&) = delete;

  // Applies the key's limits and tenant to a request whose prompt is known, and counts the prompt's
  // tokens. `own_max`: the request sets max_tokens itself; else max_tokens is lowered to the limit.
  // ResourceExhausted or InvalidArgument that names the limit.
  Status Apply(RequestSpec& spec, bool own_max) const;
  // Counts the end of the request, which has generated `tokens`.
  void CountEnd(int64_t tokens, const Status& status) const;

 private:
  CallerLimits& limits_;
  const Caller caller_;
  const int32_t prompts_;
  const Time began_;
};

// Enforces the limits of the keys with which clients call (KeyLimits). Must outlive its tickets.
// Thread-safe.
class CallerLimits final {
 public:
  // `callers`: null when clients need no key; then there are no limits. Outlives this object.
  CallerLimits(Authenticator* callers, const Clock& clock) : callers_(callers), clock_(clock) {}

  // A ticket for one of the `prompts` prompts of a request of `client`, the id of a key; null when
  // clients need no key. Errors: ResourceExhausted that names the limit and the time to wait
  // (RetryAfterOf); InvalidArgument when the limits never admit that number of prompts together;
  // Unauthenticated when the key was removed meanwhile.
  StatusOr<std::shared_ptr<CallerTicket>> Admit(const std::string& client, int32_t prompts = 1);

  // Counts a request of `client` that was refused because of `why` before it asked for a ticket.
  void CountRefused(const std::string& client, const Status& why);

  // The `most` callers with the most requests.
  std::vector<CallerUsage> Top(size_t most) const;

 private:
  friend class CallerTicket;
  struct Usage {
    CallerUsage total;
    RateBudget requests;
    RateBudget tokens;
    ServiceTime times;
  };

  static Status CheckPrompts(const Caller& caller, int32_t prompts);
  // ResourceExhausted when a limit is reached.
  Status CheckRates(Usage& usage, const Caller& caller);
  void Count(const std::string& id, int64_t tokens, const Status& status = OkStatus());
  void End(const std::string& id, Time began);

  Authenticator* const callers_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Usage> usage_;  // by the key's id; guarded by mutex_
};

}  // namespace baton::router

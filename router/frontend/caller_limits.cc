#include "router/frontend/caller_limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/retry_after.h"
#include "common/security/digest.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

// Separates the tenant from the client's own salt; a tenant's name cannot contain it.
constexpr char kSaltSeparator = '\n';

// The tenant's salt. A client may divide it further by a salt of its own, which is hashed so that
// the result is short.
std::string SaltOf(const std::string& tenant, const std::string& own) {
  if (own.empty()) return tenant;
  return tenant + kSaltSeparator + Base64Url(BytesOf(Sha256(own)));
}

Status OverLimit(std::string_view limit,
                 const std::string& id,
                 const std::string& detail,
                 std::optional<Duration> wait) {
  const Status over = WithReason(MakeStatus(StatusCode::kResourceExhausted,
                                            "the key \"{}\" has reached its limit {}: {}",
                                            id,
                                            limit,
                                            detail),
                                 reason::kRateLimitExceeded);
  return wait.has_value() ? WithRetryAfter(over, *wait) : over;
}

std::string RetryIn(Duration wait) {
  return fmt::format("try again in {:.0f} s", std::max(1.0, std::ceil(ToSeconds(wait))));
}

}  // namespace

Duration RateBudget::Wait(double rate, Time now) {
  if (rate <= 0) return Duration::zero();
  const double most = Most(rate);
  level_ = used_ ? std::min(most, level_ + rate * ToSeconds(now - last_)) : most;
  used_ = true;
  last_ = now;
  // A whole unit must be there, so that a rate below 1 means one unit now and then.
  const double missing = std::min(1.0, most) - level_;
  return missing <= 0 ? Duration::zero() : FromSeconds(missing / rate);
}

CallerTicket::~CallerTicket() {
  limits_.End(caller_.id, began_);
}

Status CallerTicket::Apply(RequestSpec& spec, bool own_max) const {
  const KeyLimits& limits = caller_.limits;
  const auto prompt = static_cast<int64_t>(spec.prompt.size());
  if (limits.prompt_tokens > 0 && prompt > limits.prompt_tokens) {
    return InvalidArgument(
        "the prompt has {} tokens; the limit prompt_tokens of the key \"{}\" is {}",
        prompt,
        caller_.id,
        limits.prompt_tokens);
  }
  if (limits.output_tokens > 0) {
    const int64_t answers = int64_t{prompts_} * spec.samples;
    const int64_t each = limits.output_tokens / answers;
    if (each == 0 || (own_max && spec.max_tokens > each)) {
      return InvalidMember(
          "max_tokens",
          "max_tokens is {} for each of {} answers; the limit output_tokens of the "
          "key \"{}\" is {}",
          own_max ? spec.max_tokens : 1,
          answers,
          caller_.id,
          limits.output_tokens);
    }
    spec.max_tokens = static_cast<int32_t>(std::min<int64_t>(spec.max_tokens, each));
    spec.min_tokens = std::min(spec.min_tokens, spec.max_tokens);
  }
  spec.cache_salt = SaltOf(caller_.tenant, spec.cache_salt);
  limits_.Count(caller_.id, prompt);
  return OkStatus();
}

void CallerTicket::CountEnd(int64_t tokens, const Status& status) const {
  limits_.Count(caller_.id, tokens, status);
}

StatusOr<std::shared_ptr<CallerTicket>> CallerLimits::Admit(const std::string& client,
                                                            int32_t prompts) {
  if (callers_ == nullptr) return std::shared_ptr<CallerTicket>();
  std::optional<Caller> caller = callers_->Find(client);
  if (!caller.has_value()) {
    return MakeStatus(StatusCode::kUnauthenticated, "the key \"{}\" was removed", client);
  }
  {
    std::lock_guard lock(mutex_);
    Usage& usage = usage_[caller->id];
    ++usage.total.requests;
    Status within = CheckPrompts(*caller, prompts);
    if (within.ok()) within = CheckRates(usage, *caller);
    if (!within.ok()) {
      ++usage.total.errors[within.code()];
      return within;
    }
    usage.requests.Take(1);
    ++usage.total.running;
  }
  return std::make_shared<CallerTicket>(*this, *std::move(caller), prompts, clock_.Now());
}

void CallerLimits::CountRefused(const std::string& client, const Status& why) {
  if (callers_ == nullptr) return;
  const std::optional<Caller> caller = callers_->Find(client);
  if (!caller.has_value()) return;
  std::lock_guard lock(mutex_);
  CallerUsage& usage = usage_[caller->id].total;
  ++usage.requests;
  ++usage.errors[why.code()];
}

// A request that has more prompts than the key's limits ever admit together would be refused at
// every try.
Status CallerLimits::CheckPrompts(const Caller& caller, int32_t prompts) {
  const KeyLimits& limits = caller.limits;
  const auto check = [&](std::string_view limit, double value, double most) {
    if (value <= 0 || prompts <= most) return OkStatus();
    return InvalidMember(
        "prompt",
        "the request has {} prompts; the limit {} of the key \"{}\" is {}, and each "
        "prompt counts as a request",
        prompts,
        limit,
        caller.id,
        value);
  };
  const double in_flight = limits.requests_in_flight;
  BATON_RETURN_IF_ERROR(check("requests_in_flight", in_flight, in_flight));
  const double rate = limits.requests_per_second;
  return check("requests_per_second", rate, RateBudget::Most(rate));
}

Status CallerLimits::CheckRates(Usage& usage, const Caller& caller) {
  const KeyLimits& limits = caller.limits;
  const Time now = clock_.Now();
  if (limits.requests_in_flight > 0 && usage.total.running >= limits.requests_in_flight) {
    return OverLimit("requests_in_flight",
                     caller.id,
                     fmt::format("{} requests are running", usage.total.running),
                     usage.times.UntilNextEnd(usage.total.running));
  }
  if (const Duration wait = usage.tokens.Wait(limits.tokens_per_second, now); wait.count() > 0) {
    return OverLimit("tokens_per_second", caller.id, RetryIn(wait), wait);
  }
  const Duration wait = usage.requests.Wait(limits.requests_per_second, now);
  if (wait.count() > 0) {
    return OverLimit("requests_per_second", caller.id, RetryIn(wait), wait);
  }
  return OkStatus();
}

std::vector<CallerUsage> CallerLimits::Top(size_t most) const {
  std::vector<CallerUsage> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, usage] : usage_) {
      all.push_back(usage.total);
      all.back().id = id;
    }
  }
  const size_t count = std::min(most, all.size());
  std::partial_sort(all.begin(),
                    all.begin() + static_cast<ptrdiff_t>(count),
                    all.end(),
                    [](const auto& a, const auto& b) { return a.requests > b.requests; });
  all.resize(count);
  return all;
}

void CallerLimits::Count(const std::string& id, int64_t tokens, const Status& status) {
  std::lock_guard lock(mutex_);
  Usage& usage = usage_[id];
  usage.tokens.Take(static_cast<double>(tokens));
  usage.total.tokens += tokens;
  if (!status.ok()) ++usage.total.errors[status.code()];
}

void CallerLimits::End(const std::string& id, Time began) {
  std::lock_guard lock(mutex_);
  Usage& usage = usage_[id];
  --usage.total.running;
  usage.times.Add(clock_.Now() - began);
}

}  // namespace baton::router

#include "common/worker/worker_link_clients.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "common/base/thread.h"
#include "common/rpc/address.h"

namespace baton {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(3);
constexpr std::string_view kDns = "dns:///";

bool IsName(std::string_view target) {
  return target.substr(0, kDns.size()) == kDns;
}

}  // namespace

WorkerLinkClients::WorkerLinkClients(RouterTargets targets, WorkerLinkContext context)
    : options_(std::move(targets)), context_(std::move(context)) {}

WorkerLinkClients::~WorkerLinkClients() = default;

Status WorkerLinkClients::Start() {
  if (options_.targets.empty()) {
    return InvalidArgument("routers is empty; a worker needs the host:port of at least one router");
  }
  for (const std::string& target : options_.targets) {
    const StatusOr<HostPort> parsed =
        ParseHostPort(IsName(target) ? target.substr(kDns.size()) : target);
    BATON_RETURN_IF_ERROR(Annotate(parsed.status(), "routers"));
  }
  resolver_ = StartThread("resolver", [this](const std::stop_token& stop) { ResolveLoop(stop); });
  return OkStatus();
}

void WorkerLinkClients::ResolveLoop(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::map<std::string, std::vector<std::string>> found;  // target → its last known addresses
  while (!stop.stop_requested()) {
    std::set<std::string> all;
    for (const std::string& target : options_.targets) {
      const StatusOr<std::vector<std::string>> addresses = ResolveTarget(target);
      if (addresses.ok()) {
        // A plain address needs no look-up, so its entry is always about joining.
        if (IsName(target)) problems_.Forget(target);
        found[target] = *addresses;
      } else {
        problems_.Note(target, addresses.status(), context_.clock.Now());
      }
      all.insert(found[target].begin(), found[target].end());
    }
    context_.loop.PostInternal(
        [this, list = std::vector<std::string>(all.begin(), all.end())] { SetAddresses(list); });
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, options_.resolve_every, [] { return false; });
  }
}

void WorkerLinkClients::SetAddresses(const std::vector<std::string>& addresses) {
  if (retired_) return;
  for (auto& [address, target] : targets_) target.wanted = false;
  for (const std::string& address : addresses) {
    Target& target = targets_[address];
    target.wanted = true;
    if (target.link == nullptr && target.failures == 0) Dial(address, target);
  }
  std::erase_if(targets_, [this](const auto& entry) {
    const auto& [address, target] = entry;
    if (target.wanted || target.link != nullptr) return false;
    problems_.Forget(address);
    return true;
  });
}

void WorkerLinkClients::Dial(const std::string& address, Target& target) {
  target.link = std::make_unique<WorkerLinkClient>(RouterKey(next_key_++), address, context_);
}

WorkerLinkClient* WorkerLinkClients::Find(RouterKey key) {
  for (auto& [address, target] : targets_) {
    if (target.link != nullptr && target.link->key() == key) {
      return target.link->joined() ? target.link.get() : nullptr;
    }
  }
  return nullptr;
}

void WorkerLinkClients::ForEachJoined(const std::function<void(WorkerLinkClient&)>& visit) {
  for (auto& [address, target] : targets_) {
    if (target.link != nullptr && target.link->joined()) visit(*target.link);
  }
}

void WorkerLinkClients::DropEnded(const std::string& address, Target& target, Time now) {
  if (const Status& refusal = target.link->refusal(); !refusal.ok() && !retired_) {
    problems_.Note(address, refusal, now);
  }
  const Duration pause = std::min<Duration>(kLongestPause, kFirstPause * (1 << target.failures));
  target.failures = std::min(target.failures + 1, 5);
  target.next_dial = now + pause;
  target.link.reset();
}

void WorkerLinkClients::OnTick(Time now) {
  context_.closing.Collect();
  int joined = 0;
  for (auto& [address, target] : targets_) {
    if (target.link != nullptr && target.link->ended()) DropEnded(address, target, now);
    if (target.link == nullptr) {
      if (!retired_ && target.wanted && now >= target.next_dial) Dial(address, target);
    } else if (target.link->joined()) {
      target.failures = 0;
      problems_.Forget(address);
      ++joined;
      target.link->BeatIfDue(now);
    } else if (now - target.link->opened() > options_.join_timeout) {
      target.link->Close(Status(StatusCode::kDeadlineExceeded, "no Welcome arrived in time"));
    }
  }
  joined_ = joined;
}

void WorkerLinkClients::Flush() {
  for (auto& [address, target] : targets_) {
    if (target.link != nullptr) target.link->Flush();
  }
}

Status WorkerLinkClients::Ready() const {
  if (joined_ > 0) return OkStatus();
  const std::string problems = problems_.ToString();
  return MakeStatus(
      StatusCode::kUnavailable, "no router is joined{}{}", problems.empty() ? "" : ": ", problems);
}

void WorkerLinkClients::Retire() {
  retired_ = true;
  for (auto& [address, target] : targets_) {
    if (target.link != nullptr) target.link->Leave();
  }
}

void WorkerLinkClients::Leave(Duration limit) {
  resolver_ = {};
  const Time deadline = context_.clock.Now() + limit;
  Retire();
  for (auto& [address, target] : targets_) {
    if (target.link == nullptr) continue;
    target.link->AwaitClosed(std::max(Duration::zero(), deadline - context_.clock.Now()));
    target.link.reset();
  }
  context_.closing.AwaitAll();
  joined_ = 0;
}

}  // namespace baton

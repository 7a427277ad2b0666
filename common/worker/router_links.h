#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/worker/join_problems.h"
#include "common/worker/router_link.h"

namespace baton {

struct RouterTargets {
  std::vector<std::string> targets;  // "host:port", or "dns:///name:port" for all of its addresses
  Duration resolve_every = std::chrono::seconds(5);
  Duration join_timeout = std::chrono::seconds(10);  // dialling → welcome
};

// A worker's links to every router there is: looks the names up again and again on a thread of its
// own, dials what it finds, dials again with growing pauses what was lost. Everything else is
// called on the worker's thread.
class RouterLinks final {
 public:
  // `context` is kept.
  RouterLinks(RouterTargets targets, RouterLinkContext context);
  // Breaks every stream off.
  ~RouterLinks();

  // InvalidArgument without a target, and for one that cannot be one. Then starts to look up and
  // dial.
  Status Start();

  // The joined link of that key, or null.
  RouterLink* Find(RouterKey key);
  void ForEachJoined(const std::function<void(RouterLink&)>& visit);
  // OK when a router is joined; else Unavailable saying why each is not. Thread-safe.
  Status Ready() const;

  void OnTick(Time now);
  void Flush();

  // No new links; those there are send what they hold and end.
  void Retire();
  // As Retire, and waits for the ends until `limit` passes. Called when the worker's thread has
  // ended.
  void Leave(Duration limit);

 private:
  struct Target {
    std::unique_ptr<RouterLink> link;
    int failures = 0;
    Time next_dial{};
    bool wanted = true;  // still among the addresses found
  };

  void ResolveLoop(const std::stop_token& stop);
  void SetAddresses(const std::vector<std::string>& addresses);
  void Dial(const std::string& address, Target& target);
  void DropEnded(const std::string& address, Target& target, Time now);

  const RouterTargets options_;
  const RouterLinkContext context_;
  std::map<std::string, Target> targets_;  // by address
  uint64_t next_key_ = 1;
  bool retired_ = false;
  std::atomic<int> joined_{0};
  JoinProblems problems_;
  std::jthread resolver_;
};

}  // namespace baton

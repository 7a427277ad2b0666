#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/worker/join_problems.h"
#include "common/worker/worker_link_client.h"

namespace baton {

struct RouterTargets {
  std::vector<std::string> targets;  // "host:port", or "dns:///name:port" for each of its addresses
  Duration resolve_every = std::chrono::seconds(5);
  Duration join_timeout = std::chrono::seconds(10);  // dialling → welcome
};

// A worker's links to all routers. A thread of its own resolves the names periodically; each new
// address is dialled, and a lost one is dialled again with growing pauses. Unless stated otherwise,
// methods are called on the worker's thread.
class WorkerLinkClients final {
 public:
  // `context` is copied; the objects that it refers to outlive this.
  WorkerLinkClients(RouterTargets targets, WorkerLinkContext context);
  // Breaks every stream. Their ends are awaited by `context.closing`.
  ~WorkerLinkClients();

  // Starts to resolve and dial the targets. InvalidArgument when there is no target, or when one is
  // malformed.
  Status Start();

  // The joined link with this key, or null.
  WorkerLinkClient* Find(RouterKey key);
  void ForEachJoined(const std::function<void(WorkerLinkClient&)>& visit);
  // OK when a router is joined; else Unavailable with the reason for each router. Thread-safe.
  Status Ready() const;

  void OnTick(Time now);
  void Flush();

  // Opens no more links; the existing links send what they hold and end.
  void Retire();
  // As Retire, then waits at most `limit` for the links to end. Called after the worker's thread
  // has ended.
  void Leave(Duration limit);

 private:
  struct Target {
    std::unique_ptr<WorkerLinkClient> link;
    int failures = 0;
    Time next_dial{};
    bool wanted = true;  // the last resolution of the names found this address
  };

  void ResolveLoop(const std::stop_token& stop);
  void SetAddresses(const std::vector<std::string>& addresses);
  void Dial(const std::string& address, Target& target);
  void DropEnded(const std::string& address, Target& target, Time now);

  const RouterTargets options_;
  const WorkerLinkContext context_;
  std::map<std::string, Target> targets_;  // by address
  uint64_t next_key_ = 1;
  bool retired_ = false;
  std::atomic<int> joined_{0};
  JoinProblems problems_;
  std::jthread resolver_;
};

}  // namespace baton

#include "common/rpc/remote_client.h"

#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <grpcpp/server_context.h>

#include "common/base/clock.h"

namespace baton {
namespace {

constexpr std::string_view kScheme = "unix-abstract:";
// A call that waits in gRPC when its connection ends reaches its handler within this time.
constexpr Duration kForgetAfter = std::chrono::seconds(10);
constexpr size_t kMaxEnded = 4096;

// The clients of all gRPC ports of the process. A handler knows only the name of a socket, and
// several ports may share a service, so there is one table. Thread-safe.
class Clients final {
 public:
  void Add(const std::string& name, std::shared_ptr<RemoteClient> client) {
    std::lock_guard lock(mutex_);
    clients_[name] = std::move(client);
  }
  void End(const std::string& name) {
    std::lock_guard lock(mutex_);
    const Time now = SteadyClock().Now();
    ended_.emplace_back(name, now + kForgetAfter);
    while (ended_.front().second <= now || ended_.size() > kMaxEnded) {
      clients_.erase(ended_.front().first);
      ended_.pop_front();
    }
  }
  std::shared_ptr<RemoteClient> Find(const std::string& name) const {
    std::lock_guard lock(mutex_);
    const auto found = clients_.find(name);
    return found == clients_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<RemoteClient>> clients_;
  std::deque<std::pair<std::string, Time>> ended_;  // the first to be forgotten is in front
};

Clients& AllClients() {
  static auto* const clients = new Clients;  // never destroyed: handlers may still run
  return *clients;
}

}  // namespace

RemoteClient::RemoteClient(std::string address, std::string certificate)
    : address_(std::move(address)), certificate_(std::move(certificate)) {}

void RememberClient(const std::string& name, std::shared_ptr<RemoteClient> client) {
  AllClients().Add(name, std::move(client));
}

void ForgetClient(const std::string& name) {
  AllClients().End(name);
}

std::shared_ptr<RemoteClient> ClientOf(const grpc::ServerContextBase& context) {
  std::string peer = context.peer();
  if (peer.starts_with(kScheme)) {
    if (auto client = AllClients().Find(peer.substr(kScheme.size()))) return client;
  }
  return std::make_shared<RemoteClient>(std::move(peer), "");
}

}  // namespace baton

#include "common/rpc/call_gate.h"

#include <memory>

#include "common/base/host_port.h"
#include "common/rpc/remote_client.h"

namespace baton {
namespace {

std::string MetadataOf(const grpc::ServerContextBase& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

StatusOr<std::string> CallGate::Admit(const grpc::ServerContextBase& context) const {
  const std::shared_ptr<RemoteClient> client = ClientOf(context);
  std::string address = HostOfPeer(client->address());
  if (callers_ == nullptr) {
    client->SetProven();
    return address;
  }
  std::string key = MetadataOf(context, "x-api-key");
  if (key.empty()) key = KeyOfAuthorization(MetadataOf(context, "authorization"));
  StatusOr<Caller> caller = callers_->Authenticate(key, client->certificate());
  if (caller.ok()) {
    client->SetProven();
    return std::move(caller->id);
  }
  refusals_->Add(port_, address, caller.status());
  return caller.status();
}

}  // namespace baton

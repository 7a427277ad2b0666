#include "common/rpc/call_gate.h"

#include <grpc/grpc_security_constants.h>

#include "common/base/host_port.h"

namespace baton {
namespace {

std::string MetadataOf(const grpc::ServerContextBase& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

// The common name in the caller's certificate, which the handshake has verified; empty: none.
std::string CertificateOf(const grpc::ServerContextBase& context) {
  const auto peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return "";
  const auto names = peer->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  return names.empty() ? "" : std::string(names.front().data(), names.front().size());
}

}  // namespace

StatusOr<std::string> CallGate::Admit(const grpc::ServerContextBase& context) const {
  std::string address = HostOfPeer(context.peer());
  if (callers_ == nullptr) return address;
  std::string key = MetadataOf(context, "x-api-key");
  if (key.empty()) key = KeyOfAuthorization(MetadataOf(context, "authorization"));
  StatusOr<Caller> caller = callers_->Authenticate(key, CertificateOf(context));
  if (caller.ok()) return std::move(caller->id);
  refusals_->Add(port_, address, caller.status());
  return caller.status();
}

}  // namespace baton

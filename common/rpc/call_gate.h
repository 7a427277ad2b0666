#pragma once

#include <string>
#include <string_view>

#include <grpcpp/server_context.h>

#include "common/base/status.h"
#include "common/security/authenticator.h"

namespace baton {

// Decides which calls of one gRPC port are served. Thread-safe.
class CallGate final {
 public:
  // `callers`: recognises callers by their keys; null: every call is served. `port` names the port
  // in the log. Both referents outlive the gate.
  CallGate(Authenticator* callers, Refusals& refusals, std::string_view port)
      : callers_(callers), refusals_(&refusals), port_(port) {}

  // Who calls: the id of the key in the metadata `authorization` ("Bearer KEY") or `x-api-key`,
  // else of the caller's certificate; or the address without the port when callers need no key.
  // Unauthenticated when the call is refused.
  StatusOr<std::string> Admit(const grpc::ServerContextBase& context) const;

 private:
  Authenticator* callers_;
  Refusals* refusals_;
  std::string_view port_;
};

}  // namespace baton

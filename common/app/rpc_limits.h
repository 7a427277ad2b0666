#pragma once

#include "common/config/config.h"
#include "common/rpc/channel.h"

namespace baton {

// The limits of a gRPC port of this process, without encryption or proofs.
inline ConnectionLimits RpcLimitsOf(const config::ProcessConfig& process) {
  ConnectionLimits limits;
  limits.max_connections = process.grpc_limits().max_connections();
  limits.max_connections_per_address = process.grpc_limits().max_connections_per_address();
  return limits;
}

}  // namespace baton

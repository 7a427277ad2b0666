#pragma once

#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "cli/router_endpoint.h"
#include "common/rpc/channel.h"

namespace baton {

// A channel to the endpoint, encrypted if the endpoint says so.
std::shared_ptr<grpc::Channel> ChannelTo(const RouterEndpoint& endpoint,
                                         ConnectionLimits limits = {});
// Adds the endpoint's key, if it has one, to a call that is about to start.
void AddKey(const RouterEndpoint& endpoint, grpc::ClientContext& context);

}  // namespace baton

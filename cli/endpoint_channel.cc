#include "cli/endpoint_channel.h"

namespace baton {

std::shared_ptr<grpc::Channel> ChannelTo(const RouterEndpoint& endpoint, ConnectionLimits limits) {
  if (endpoint.tls) {
    RpcTls tls;
    tls.ca_file = endpoint.ca_file;
    tls.certificate_file = endpoint.certificate_file;
    tls.key_file = endpoint.certificate_key_file;
    limits.tls = std::make_shared<const RpcTls>(std::move(tls));
  }
  return MakeChannel(endpoint.address, limits);
}

void AddKey(const RouterEndpoint& endpoint, grpc::ClientContext& context) {
  if (!endpoint.key.empty()) context.AddMetadata("authorization", "Bearer " + endpoint.key);
}

}  // namespace baton

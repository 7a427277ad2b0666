#include "common/rpc/rpc_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "common/rpc/address.h"
#include "common/rpc/library_log.h"

namespace baton {

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& address,
                                                      std::span<grpc::Service* const> services,
                                                      const ConnectionLimits& limits) {
  RedirectLibraryLogs();
  grpc::EnableDefaultHealthCheckService(true);
  BATON_ASSIGN_OR_RETURN(HostPort parsed, ParseHostPort(address));
  grpc::ServerBuilder builder;
  ApplyLimits(limits, builder);
  int port = 0;
  builder.AddListeningPort(
      address,
      limits.tls == nullptr ? grpc::InsecureServerCredentials() : ServerCredentialsOf(*limits.tls),
      &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "cannot listen on '{}': the port is in use, or the host is not an address "
                      "of this machine",
                      address);
  }
  parsed.port = static_cast<uint16_t>(port);
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), parsed.ToString(), port));
}

RpcServer::~RpcServer() {
  Shutdown(Duration::zero());
}

void RpcServer::SetServing(const std::string& service, bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(service, serving);
  health->SetServingStatus("", serving);
}

void RpcServer::Shutdown(Duration grace) {
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::microseconds>(grace));
  server_->Wait();
}

}  // namespace baton

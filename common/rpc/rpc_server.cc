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
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionAcceptor> acceptor,
                         ConnectionAcceptor::Listen(
                             parsed, {limits.max_connections, limits.max_connections_per_address}));
  grpc::ServerBuilder builder;
  ApplyLimits(limits, builder);
  using Way = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
      builder.experimental().AddExternalConnectionAcceptor(Way::FROM_FD,
                                                           limits.tls == nullptr
                                                               ? grpc::InsecureServerCredentials()
                                                               : ServerCredentialsOf(*limits.tls));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return MakeStatus(
        StatusCode::kInternal, "gRPC cannot serve on '{}'; the log says why", address);
  }
  acceptor->Start([connections](int listener, UniqueFd connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listener;
    parameters.fd = connection.Release();
    connections->HandleNewConnection(&parameters);
  });
  parsed.port = acceptor->port();
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(server), std::move(acceptor), parsed.ToString()));
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
  acceptor_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::microseconds>(grace));
  server_->Wait();
}

}  // namespace baton

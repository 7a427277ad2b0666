#include "common/rpc/rpc_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "common/rpc/address.h"
#include "common/rpc/library_log.h"

namespace baton {
namespace {

// What the clients of a port that have proven nothing may hold together, beside one message.
constexpr size_t kStrangerBytes = size_t{24} << 20;

}  // namespace

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& address,
                                                      std::span<grpc::Service* const> services,
                                                      const ConnectionLimits& limits) {
  RedirectLibraryLogs();
  grpc::EnableDefaultHealthCheckService(true);
  BATON_ASSIGN_OR_RETURN(HostPort parsed, ParseHostPort(address));
  ConnectionAcceptor::Options options;
  options.connections = limits.max_connections;
  options.connections_per_address = limits.max_connections_per_address;
  options.handshake_timeout = limits.handshake_timeout;
  options.stranger_bytes = limits.max_message_bytes + kStrangerBytes;
  if (limits.tls != nullptr) {
    BATON_ASSIGN_OR_RETURN(options.tls, TlsContext::Open(ServerFilesOf(*limits.tls)));
  }
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionAcceptor> acceptor,
                         ConnectionAcceptor::Listen(parsed, std::move(options)));
  grpc::ServerBuilder builder;
  ApplyLimits(limits, builder);
  using Way = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
      builder.experimental().AddExternalConnectionAcceptor(Way::FROM_FD,
                                                           grpc::InsecureServerCredentials());
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return MakeStatus(
        StatusCode::kInternal, "gRPC cannot serve on '{}'; the log says why", address);
  }
  acceptor->Start([connections](UniqueFd connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
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
  acceptor_->StopListening();
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::microseconds>(grace));
  server_->Wait();
  acceptor_->Stop();
}

}  // namespace baton

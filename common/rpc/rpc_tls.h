#pragma once

#include <memory>
#include <string>

#include <grpcpp/security/credentials.h>

#include "common/base/status.h"
#include "common/http/tls/tls_context.h"

namespace baton {

// The PEM files of one end of encrypted connections. Changed files are read again within a second;
// running connections go on.
struct RpcTls {
  std::string certificate_file;  // empty at a client that has no certificate
  std::string key_file;
  // The authority of the other end's certificate. Empty: a server accepts clients without
  // certificates, and a client uses the system's authorities.
  std::string ca_file;
  std::string peer_name;  // client: the name in the server's certificate; empty: the dialled host
  // The folder of the authority's revocation lists, as `openssl rehash` names them; empty: none.
  std::string crl_folder = {};
  // Server with ca_file: a client without a certificate is served, too.
  bool certificate_is_optional = false;
};

// InvalidArgument when a file cannot be read, or when certificate and key do not belong together.
// To be called before the credentials are made: gRPC itself only logs such faults.
Status CheckTls(const RpcTls& tls);

// What a server's TLS needs. gRPC has no part in it (ConnectionAcceptor).
TlsFiles ServerFilesOf(const RpcTls& tls);
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const RpcTls& tls);

}  // namespace baton

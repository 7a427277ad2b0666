#include "common/rpc/rpc_tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr unsigned kReloadSeconds = 1;
constexpr size_t kMaxPemBytes = size_t{1} << 20;
constexpr std::string_view kPemBegin = "-----BEGIN ";

Status CheckPem(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxPemBytes));
  if (text.find(kPemBegin) != std::string::npos) return OkStatus();
  return InvalidArgument(
      "'{}' is not a PEM file: it has no line that begins with {}", path, kPemBegin);
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const RpcTls& tls) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key_file, tls.certificate_file, tls.ca_file, kReloadSeconds);
}

}  // namespace

Status CheckTls(const RpcTls& tls) {
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    return InvalidArgument("certificate_file is '{}' and key_file is '{}'; both are needed",
                           tls.certificate_file,
                           tls.key_file);
  }
  for (const std::string& path : {tls.certificate_file, tls.key_file, tls.ca_file}) {
    if (!path.empty()) BATON_RETURN_IF_ERROR(CheckPem(path));
  }
  return OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const RpcTls& tls) {
  grpc::experimental::TlsServerCredentialsOptions options(Watch(tls));
  options.watch_identity_key_cert_pairs();
  if (!tls.ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const RpcTls& tls) {
  if (tls.certificate_file.empty() && tls.ca_file.empty()) {
    return grpc::SslCredentials(grpc::SslCredentialsOptions());
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(tls));
  if (!tls.certificate_file.empty()) options.watch_identity_key_cert_pairs();
  if (!tls.ca_file.empty()) options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace baton

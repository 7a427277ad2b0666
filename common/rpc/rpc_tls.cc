#include "common/rpc/rpc_tls.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <filesystem>

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "common/base/free_with.h"
#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr unsigned kReloadSeconds = 1;
constexpr size_t kMaxPemBytes = size_t{1} << 20;

using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;

StatusOr<Bio> ReadPem(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxPemBytes));
  Bio bio(BIO_new(BIO_s_mem()));
  BIO_write(bio.get(), text.data(), static_cast<int>(text.size()));
  return bio;
}

StatusOr<Certificate> ReadCertificate(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const Bio pem, ReadPem(path));
  Certificate certificate(PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr));
  if (certificate != nullptr) return certificate;
  return InvalidArgument("'{}' is not a PEM file with a certificate", path);
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
  if (!tls.ca_file.empty()) BATON_RETURN_IF_ERROR(ReadCertificate(tls.ca_file).status());
  if (!tls.crl_folder.empty() && !std::filesystem::is_directory(tls.crl_folder)) {
    return InvalidArgument("crl_folder '{}' is not a folder", tls.crl_folder);
  }
  if (tls.certificate_file.empty()) return OkStatus();
  BATON_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(tls.certificate_file));
  BATON_ASSIGN_OR_RETURN(const Bio pem, ReadPem(tls.key_file));
  const Key key(PEM_read_bio_PrivateKey(pem.get(), nullptr, nullptr, nullptr));
  if (key == nullptr)
    return InvalidArgument("'{}' is not a PEM file with a private key", tls.key_file);
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return OkStatus();
  return InvalidArgument(
      "the key in '{}' is not that of the certificate '{}'", tls.key_file, tls.certificate_file);
}

TlsFiles ServerFilesOf(const RpcTls& tls) {
  TlsFiles files;
  files.certificate = tls.certificate_file;
  files.key = tls.key_file;
  files.client_ca = tls.ca_file;
  files.client_crl_folder = tls.crl_folder;
  files.certificate_is_required = !tls.certificate_is_optional;
  return files;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const RpcTls& tls) {
  if (tls.certificate_file.empty() && tls.ca_file.empty()) {
    return grpc::SslCredentials(grpc::SslCredentialsOptions());
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(tls));
  if (!tls.certificate_file.empty()) options.watch_identity_key_cert_pairs();
  if (!tls.ca_file.empty()) options.watch_root_certs();
  if (!tls.crl_folder.empty()) options.set_crl_directory(tls.crl_folder);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace baton

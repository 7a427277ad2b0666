#include "tests/support/test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "common/base/check.h"
#include "common/base/hash.h"

namespace baton {
namespace {

constexpr long kDay = 86400;

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_CRL* list) const { X509_CRL_free(list); }
  void operator()(ASN1_STRING* value) const { ASN1_STRING_free(value); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using List = std::unique_ptr<X509_CRL, Free>;
using Asn1Time = std::unique_ptr<ASN1_TIME, Free>;
using Integer = std::unique_ptr<ASN1_INTEGER, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using File = std::unique_ptr<std::FILE, Free>;

Key MakeKey() {
  Key key(EVP_EC_gen("P-256"));
  BATON_CHECK(key != nullptr, "OpenSSL cannot make a key");
  return key;
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  BATON_CHECK(extension != nullptr, "OpenSSL does not take the extension {}", value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A certificate for `key`, not signed yet. `issuer` null: the certificate itself.
Certificate Unsigned(EVP_PKEY* key, const std::string& name, X509* issuer, long valid_seconds) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), RandomId() >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_seconds);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(
      subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(),
                       issuer == nullptr ? subject : X509_get_subject_name(issuer));
  return certificate;
}

void Write(const CertificateFiles& files, X509* certificate, EVP_PKEY* key) {
  const File pem(std::fopen(files.certificate.c_str(), "w"));
  PEM_write_X509(pem.get(), certificate);
  const File key_pem(std::fopen(files.key.c_str(), "w"));
  PEM_write_PrivateKey(key_pem.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
}

}  // namespace

struct TestAuthority::Impl {
  Key key = MakeKey();
  Certificate certificate;
  std::vector<uint64_t> revoked;  // serial numbers
  int lists = 0;
};

TestAuthority::TestAuthority() : impl_(std::make_unique<Impl>()) {
  ca_ = {folder_.path() + "/ca.crt", folder_.path() + "/ca.key"};
  impl_->certificate = Unsigned(impl_->key.get(), "test authority", nullptr, kDay);
  X509* const own = impl_->certificate.get();
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  X509_sign(own, impl_->key.get(), EVP_sha256());
  Write(ca_, own, impl_->key.get());
}

TestAuthority::~TestAuthority() = default;

std::string TestAuthority::crl_folder() const {
  std::string folder = folder_.path() + "/crl";
  std::filesystem::create_directory(folder);
  return folder;
}

void TestAuthority::Revoke(const CertificateFiles& files) {
  const File pem(std::fopen(files.certificate.c_str(), "r"));
  const Certificate certificate(PEM_read_X509(pem.get(), nullptr, nullptr, nullptr));
  uint64_t number = 0;
  ASN1_INTEGER_get_uint64(&number, X509_get0_serialNumber(certificate.get()));
  impl_->revoked.push_back(number);
  const List list(X509_CRL_new());
  X509_CRL_set_version(list.get(), 1);
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(impl_->certificate.get()));
  const Asn1Time now(X509_gmtime_adj(nullptr, impl_->lists - 60));
  const Asn1Time next(X509_gmtime_adj(nullptr, kDay));
  X509_CRL_set1_lastUpdate(list.get(), now.get());
  X509_CRL_set1_nextUpdate(list.get(), next.get());
  for (const uint64_t serial : impl_->revoked) {
    X509_REVOKED* const entry = X509_REVOKED_new();
    const Integer value(ASN1_INTEGER_new());
    ASN1_INTEGER_set_uint64(value.get(), serial);
    X509_REVOKED_set_serialNumber(entry, value.get());
    X509_REVOKED_set_revocationDate(entry, now.get());
    X509_CRL_add0_revoked(list.get(), entry);
  }
  X509_CRL_sign(list.get(), impl_->key.get(), EVP_sha256());
  const std::string name = fmt::format("{}/{:08x}.r{}",
                                       crl_folder(),
                                       X509_subject_name_hash(impl_->certificate.get()),
                                       impl_->lists++);
  const File out(std::fopen(name.c_str(), "w"));
  PEM_write_X509_CRL(out.get(), list.get());
}

CertificateFiles TestAuthority::Make(const Leaf& leaf) const {
  const Key key = MakeKey();
  X509* const issuer = leaf.self_signed ? nullptr : impl_->certificate.get();
  const Certificate certificate = Unsigned(key.get(), leaf.file, issuer, leaf.valid_seconds);
  std::string names;
  for (const std::string& name : leaf.dns_names) names += (names.empty() ? "DNS:" : ",DNS:") + name;
  for (const std::string& ip : leaf.ip_addresses) names += (names.empty() ? "IP:" : ",IP:") + ip;
  if (!names.empty()) {
    AddExtension(certificate.get(),
                 issuer == nullptr ? certificate.get() : issuer,
                 NID_subject_alt_name,
                 names);
  }
  X509_sign(certificate.get(), leaf.self_signed ? key.get() : impl_->key.get(), EVP_sha256());
  CertificateFiles files{folder_.path() + "/" + leaf.file + ".crt",
                         folder_.path() + "/" + leaf.file + ".key"};
  Write(files, certificate.get(), key.get());
  return files;
}

}  // namespace baton

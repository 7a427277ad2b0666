#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace baton {

// The files of a certificate and its key, in PEM.
struct CertificateFiles {
  std::string certificate;
  std::string key;
};

// An authority that signs certificates for a test. Its files are removed with it.
class TestAuthority final {
 public:
  TestAuthority();
  ~TestAuthority();

  // The authority's own certificate.
  const std::string& ca_file() const { return ca_.certificate; }

  struct Leaf {
    std::string file = "leaf";                   // the name of the files
    std::vector<std::string> dns_names = {};     // subject alternative names
    std::vector<std::string> ip_addresses = {};  // subject alternative names
    long valid_seconds = 3600;                   // negative: it has expired
    bool self_signed = false;                    // signed by itself instead of the authority
  };
  // Replaces the files of an earlier certificate with the same name.
  CertificateFiles Make(const Leaf& leaf) const;

  // A folder for revocation lists, empty at first.
  std::string crl_folder() const;
  // Revokes a certificate of this authority: adds a list with it and all before it to the folder.
  void Revoke(const CertificateFiles& files);

 private:
  struct Impl;
  TemporaryFolder folder_;
  std::unique_ptr<Impl> impl_;
  CertificateFiles ca_;
};

}  // namespace baton

#pragma once

#include <algorithm>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "common/base/host_port.h"
#include "tests/support/test_certificates.h"

namespace baton {

// A TLS connection to an HTTP port. Failures give an empty result.
class HttpsConnection final {
 public:
  // `protocols`: those that the client offers, as ALPN writes them. `suite`: if it is stated, the
  // client speaks TLS 1.2 with this cipher suite only. `own`: the client's certificate, if any.
  HttpsConnection(const std::string& address,
                  const std::string& ca_file,
                  const std::string& protocols = "\x08http/1.1",
                  const std::string& suite = "",
                  const CertificateFiles& own = {}) {
    if (!own.certificate.empty()) {
      EXPECT_EQ(SSL_use_certificate_file(
                    stream_.native_handle(), own.certificate.c_str(), SSL_FILETYPE_PEM),
                1);
      EXPECT_EQ(SSL_use_PrivateKey_file(stream_.native_handle(), own.key.c_str(), SSL_FILETYPE_PEM),
                1);
    }
    if (!suite.empty()) {
      SSL_set_max_proto_version(stream_.native_handle(), TLS1_2_VERSION);
      EXPECT_EQ(SSL_set_cipher_list(stream_.native_handle(), suite.c_str()), 1) << suite;
    }
    const HostPort to = ParseHostPort(address).value();
    context_.load_verify_file(ca_file, error_);
    stream_.set_verify_mode(boost::asio::ssl::verify_peer);
    stream_.set_verify_callback(boost::asio::ssl::host_name_verification(to.host));
    if (!error_) {
      stream_.next_layer().connect({boost::asio::ip::make_address(to.host), to.port}, error_);
    }
    SSL_set_alpn_protos(stream_.native_handle(),
                        reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
    if (!error_) stream_.handshake(boost::asio::ssl::stream_base::client, error_);
  }

  const boost::system::error_code& error() const { return error_; }
  int fd() { return stream_.next_layer().native_handle(); }
  std::string protocol() {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(stream_.native_handle(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  std::string serial() {
    X509* peer = SSL_get1_peer_certificate(stream_.native_handle());
    if (peer == nullptr) return "";
    BIGNUM* number = ASN1_INTEGER_to_BN(X509_get_serialNumber(peer), nullptr);
    char* text = BN_bn2hex(number);
    std::string serial = text;
    OPENSSL_free(text);
    BN_free(number);
    X509_free(peer);
    return serial;
  }
  void Send(const std::string& bytes) {
    boost::asio::write(stream_, boost::asio::buffer(bytes), error_);
  }
  std::string ReadUntil(const std::string& marker) {
    std::string text;
    char part[4096];
    for (size_t seen = 0; !error_ && text.find(marker, seen) == std::string::npos;) {
      seen = text.size() - std::min(text.size(), marker.size());
      const size_t got = stream_.read_some(boost::asio::buffer(part), error_);
      text.append(part, got);
    }
    return text;
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_client};
  boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream_{io_, context_};
  boost::system::error_code error_;
};

}  // namespace baton

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "common/rpc/channel.h"
#include "common/security/authenticator.h"
#include "common/security/certificate_watch.h"
#include "common/security/refusals.h"

namespace baton {

// Who may use a port. kPeers: processes of the cluster, which prove themselves with the cluster's
// secret or a certificate; kKvData: those that send KV, which need the secret.
enum class PortUsers { kClients, kOperators, kPeers, kKvData };

// What a process needs to recognise clients, operators and other processes of its cluster, as
// SecurityConfig says. Thread-safe.
class ProcessSecurity final {
 public:
  // Reads the files. Errors: InvalidArgument that names the setting and the file.
  static StatusOr<std::unique_ptr<ProcessSecurity>> Open(const config::SecurityConfig& config,
                                                         MetricsRegistry& metrics);

  // InvalidArgument, which says what to set, when a port would let strangers in: `address`, the
  // value of `setting`, is not a loopback address, and users of the port need not prove who they
  // are. With security.insecure, only warns. To be called before a port is opened.
  Status CheckPort(std::string_view setting, const std::string& address, PortUsers users) const;

  // Adds the encryption and the proofs of connections between processes of the cluster.
  void SecurePeers(ConnectionLimits& limits) const;
  // Adds the encryption of a port for clients or operators at `address`. Operators' commands on the
  // same machine need none, because the certificate is for the name that clients use.
  void SecureClients(ConnectionLimits& limits) const { limits.tls = tls_; }
  void SecureOperators(ConnectionLimits& limits, const std::string& address) const;
  // How the HTTP port encrypts; null: it does not.
  const std::shared_ptr<HttpStreams>& http_streams() const { return http_streams_; }
  // Recognises clients, or operators; null: they need no key.
  Authenticator* clients() const { return clients_.get(); }
  Authenticator* operators() const { return operators_.get(); }
  Refusals& refusals() const { return *refusals_; }

  // Decides which HTTP requests are served on a port at `address`. /healthz, /health and /readyz
  // always are; /metrics, the status page and /reset_prefix_cache need an operator's key, and all
  // other paths a client's. Must not outlive this object.
  HttpGate MakeHttpGate(const std::string& address) const;

 private:
  ProcessSecurity(const config::SecurityConfig& config, MetricsRegistry& metrics);
  Status OpenTls();
  bool IsProven(PortUsers users) const;

  const config::SecurityConfig config_;
  const std::shared_ptr<Refusals> refusals_;
  std::shared_ptr<const PeerProofs> peers_;
  std::shared_ptr<const RpcTls> tls_;            // of ports for clients
  std::shared_ptr<const RpcTls> operators_tls_;  // the same without certificates of clients
  std::shared_ptr<const RpcTls> cluster_tls_;
  std::shared_ptr<HttpStreams> http_streams_;
  std::unique_ptr<Authenticator> clients_;
  std::unique_ptr<Authenticator> operators_;
  std::unique_ptr<CertificateWatch> certificates_;
};

}  // namespace baton

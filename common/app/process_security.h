#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "common/security/authenticator.h"
#include "common/security/refusals.h"
#include "proto/config.pb.h"

namespace baton {

// Who may use a port.
enum class PortUsers { kClients, kOperators, kPeers };

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

  // How processes of the cluster prove who they are; null: they do not.
  const std::shared_ptr<const PeerProofs>& peers() const { return peers_; }
  // Recognises clients, or operators; null: they need no key.
  Authenticator* clients() const { return clients_.get(); }
  Authenticator* operators() const { return operators_.get(); }
  Refusals& refusals() const { return *refusals_; }

  // Decides which HTTP requests are served on a port at `address`. /healthz, /health and /readyz
  // always are; /metrics and the status page need an operator's key, and all other paths a
  // client's. Must not outlive this object.
  HttpGate MakeHttpGate(const std::string& address) const;

 private:
  ProcessSecurity(const config::SecurityConfig& config, MetricsRegistry& metrics);

  const config::SecurityConfig config_;
  const std::shared_ptr<Refusals> refusals_;
  std::shared_ptr<const PeerProofs> peers_;
  std::unique_ptr<Authenticator> clients_;
  std::unique_ptr<Authenticator> operators_;
};

}  // namespace baton

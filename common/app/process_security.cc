#include "common/app/process_security.h"

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"
#include "common/http/tls/http_tls.h"
#include "common/log/log.h"
#include "common/security/cluster_proofs.h"
#include "common/security/loopback.h"

namespace baton {
namespace {

constexpr int kUnauthorized = 401;
constexpr std::string_view kProbePaths[] = {"/healthz", "/health", "/readyz"};
constexpr std::string_view kPagePaths[] = {"/", "/metrics", "/status.json"};
constexpr std::string_view kOperatorPaths[] = {"/reset_prefix_cache"};
constexpr const char* kClientChallenge = "Bearer realm=\"baton\"";
// Basic, so that a browser asks for the key, as the password.
constexpr const char* kPageChallenge = "Basic realm=\"baton operators: the key is the password\"";

const Logger kLog("security");

// A wrong file is a wrong setting, whatever is wrong with it.
Status WrongFile(std::string_view setting, const Status& why) {
  return InvalidArgument("security.{}: {}", setting, Message(why));
}

template <size_t kCount>
bool IsOneOf(const std::string& path, const std::string_view (&paths)[kCount]) {
  return std::find(std::begin(paths), std::end(paths), path) != std::end(paths);
}

std::string_view WhoMayUse(PortUsers users) {
  switch (users) {
    case PortUsers::kClients:
      return "use the model";
    case PortUsers::kOperators:
      return "drain workers";
    case PortUsers::kPeers:
      return "join as a worker or hand over KV";
    case PortUsers::kKvData:
      break;
  }
  return "connect as a prefill worker";
}

std::string_view NeededSetting(PortUsers users) {
  switch (users) {
    case PortUsers::kClients:
      return "security.api_keys_file (`baton key add` writes one), security.jwks_file or "
             "security.tls.client_ca_file";
    case PortUsers::kOperators:
      return "security.admin_keys_file (`baton key add` writes one)";
    case PortUsers::kPeers:
      return "security.cluster_secret_file (the same secret in all routers and workers) or "
             "security.cluster_tls";
    case PortUsers::kKvData:
      break;
  }
  return "security.cluster_secret_file (the same secret in all routers and workers)";
}

StatusOr<std::unique_ptr<Authenticator>> OpenKeys(std::string_view setting,
                                                  const Authenticator::Files& files,
                                                  Refusals& refusals) {
  if (files.keys.empty() && files.jwks.empty() && !files.certificates) {
    return std::unique_ptr<Authenticator>();
  }
  auto keys = Authenticator::Open(files, refusals);
  if (!keys.ok()) return WrongFile(setting, keys.status());
  return keys;
}

std::string KeyOf(const HttpRequest& request) {
  const std::string_view key = request.header("x-api-key");
  return key.empty() ? KeyOfAuthorization(request.header("authorization")) : std::string(key);
}

}  // namespace

ProcessSecurity::ProcessSecurity(const config::SecurityConfig& config, MetricsRegistry& metrics)
    : config_(config), refusals_(std::make_shared<Refusals>(metrics)) {}

StatusOr<std::unique_ptr<ProcessSecurity>> ProcessSecurity::Open(
    const config::SecurityConfig& config, MetricsRegistry& metrics) {
  std::unique_ptr<ProcessSecurity> security(new ProcessSecurity(config, metrics));
  if (!config.cluster_secret_file().empty()) {
    auto secret = SecretFile::Open(config.cluster_secret_file(),
                                   {FromSeconds(config.cluster_secret_overlap_seconds())},
                                   *security->refusals_);
    if (!secret.ok()) return WrongFile("cluster_secret_file", secret.status());
    security->peers_ =
        std::make_shared<const ClusterProofs>(*std::move(secret), security->refusals_);
  }
  const Authenticator::Files clients{config.api_keys_file(),
                                     config.jwks_file(),
                                     {config.jwt_issuer(), config.jwt_audience()},
                                     !config.tls().client_ca_file().empty()};
  BATON_ASSIGN_OR_RETURN(
      security->clients_,
      OpenKeys(clients.jwks.empty() ? "api_keys_file" : "api_keys_file, security.jwks_file",
               clients,
               *security->refusals_));
  BATON_ASSIGN_OR_RETURN(
      security->operators_,
      OpenKeys("admin_keys_file", {config.admin_keys_file(), "", {}}, *security->refusals_));
  BATON_RETURN_IF_ERROR(security->OpenTls());
  const config::TlsConfig& tls = config.tls();
  const config::ClusterTlsConfig& cluster = config.cluster_tls();
  security->certificates_ = std::make_unique<CertificateWatch>(std::vector<std::string>{
      tls.certificate_file(), tls.client_ca_file(), cluster.certificate_file(), cluster.ca_file()});
  return security;
}

Status ProcessSecurity::OpenTls() {
  const config::TlsConfig& tls = config_.tls();
  if (!tls.certificate_file().empty() || !tls.key_file().empty()) {
    operators_tls_ =
        std::make_shared<const RpcTls>(RpcTls{tls.certificate_file(), tls.key_file(), "", ""});
    RpcTls of_clients = *operators_tls_;
    of_clients.ca_file = tls.client_ca_file();
    of_clients.crl_folder = tls.client_crl_folder();
    of_clients.certificate_is_optional = true;
    tls_ = std::make_shared<const RpcTls>(std::move(of_clients));
    if (const Status checked = CheckTls(*tls_); !checked.ok()) return WrongFile("tls", checked);
    auto streams = HttpTls::Open({.certificate = tls.certificate_file(),
                                  .key = tls.key_file(),
                                  .client_ca = tls.client_ca_file(),
                                  .client_crl_folder = tls.client_crl_folder()},
                                 *refusals_);
    if (!streams.ok()) return WrongFile("tls", streams.status());
    http_streams_ = *std::move(streams);
  } else if (!tls.client_ca_file().empty()) {
    return InvalidArgument(
        "security.tls.client_ca_file is '{}'; it needs security.tls.certificate_file and key_file, "
        "because clients present certificates over TLS only",
        tls.client_ca_file());
  }
  const config::ClusterTlsConfig& cluster = config_.cluster_tls();
  if (cluster.certificate_file().empty() && cluster.key_file().empty() &&
      cluster.ca_file().empty()) {
    return OkStatus();
  }
  if (cluster.certificate_file().empty() || cluster.ca_file().empty()) {
    return InvalidArgument(
        "security.cluster_tls needs certificate_file, key_file and ca_file, all of them");
  }
  cluster_tls_ = std::make_shared<const RpcTls>(RpcTls{cluster.certificate_file(),
                                                       cluster.key_file(),
                                                       cluster.ca_file(),
                                                       cluster.peer_name(),
                                                       cluster.crl_folder()});
  const Status checked = CheckTls(*cluster_tls_);
  return checked.ok() ? OkStatus() : WrongFile("cluster_tls", checked);
}

void ProcessSecurity::SecurePeers(ConnectionLimits& limits) const {
  limits.tls = cluster_tls_;
  limits.proofs = peers_;
}

void ProcessSecurity::SecureOperators(ConnectionLimits& limits, const std::string& address) const {
  const StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok() || !IsLoopback(parsed->host)) limits.tls = operators_tls_;
}

bool ProcessSecurity::IsProven(PortUsers users) const {
  switch (users) {
    case PortUsers::kClients:
      return clients_ != nullptr;
    case PortUsers::kOperators:
      return operators_ != nullptr;
    case PortUsers::kPeers:
      return peers_ != nullptr || cluster_tls_ != nullptr;
    case PortUsers::kKvData:
      break;
  }
  return peers_ != nullptr;
}

Status ProcessSecurity::CheckPort(std::string_view setting,
                                  const std::string& address,
                                  PortUsers users) const {
  if (IsProven(users)) return OkStatus();
  BATON_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  if (IsLoopback(parsed.host)) return OkStatus();
  if (config_.insecure()) {
    kLog.Warning("security.insecure is true: whoever reaches {} = {} may {}",
                 setting,
                 address,
                 WhoMayUse(users));
    return OkStatus();
  }
  return InvalidArgument(
      "{} is {}, which other machines can reach, and anyone there could {}; set {}, or listen on "
      "127.0.0.1, or accept that with security.insecure: true",
      setting,
      address,
      WhoMayUse(users),
      NeededSetting(users));
}

HttpGate ProcessSecurity::MakeHttpGate(const std::string& address) const {
  const StatusOr<HostPort> parsed = ParseHostPort(address);
  const bool trusted = config_.insecure() || (parsed.ok() && IsLoopback(parsed->host));
  return [this, trusted](const HttpRequest& request) -> HttpVerdict {
    const bool opens = IsOneOf(request.path, kPagePaths);
    const bool page = opens || IsOneOf(request.path, kOperatorPaths);
    HttpVerdict verdict;
    verdict.open = IsOneOf(request.path, kProbePaths) || request.method == "OPTIONS" ||
                   (opens && config_.open_pages());
    if (verdict.open) return verdict;
    Authenticator* const callers = page ? operators() : clients();
    if (callers == nullptr && trusted) return verdict;
    StatusOr<Caller> caller =
        callers == nullptr
            ? Status(
                  StatusCode::kUnauthenticated,
                  page ? "this path needs an operator's key, and this process has no "
                         "security.admin_keys_file; security.open_pages opens pages to everyone"
                       : "this process has no security.api_keys_file, so nobody may use this path")
            : callers->Authenticate(KeyOf(request), request.certificate);
    if (caller.ok()) {
      verdict.client = std::move(caller->id);
      verdict.max_body_bytes = static_cast<size_t>(caller->limits.body_bytes);
      return verdict;
    }
    refusals_->Add(page ? "http pages" : "http", request.client, caller.status());
    verdict.status = kUnauthorized;
    verdict.message = std::string(Message(caller.status()));
    verdict.challenge = page ? kPageChallenge : kClientChallenge;
    return verdict;
  };
}

}  // namespace baton

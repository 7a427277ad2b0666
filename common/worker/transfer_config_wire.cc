#include "common/worker/transfer_config_wire.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/thread.h"
#include "common/log/log.h"
#include "common/security/loopback.h"
#include "common/worker/config_wire.h"
#include "kvtransfer/tcp/tcp_address.h"

namespace baton {
namespace {

const Logger kLog("worker");

VerbsOptions VerbsOptionsOf(const config::VerbsConfig& config) {
  VerbsOptions options;
  options.devices = {config.devices().begin(), config.devices().end()};
  options.gid_index = config.gid_index();
  options.queue_pairs = static_cast<uint32_t>(config.queue_pairs());
  options.traffic_class = static_cast<uint8_t>(config.traffic_class());
  options.listen_port = static_cast<uint16_t>(config.port());
  return options;
}

// A step that waits for memory takes 1 / (1 - share) times as long while another load takes this
// share of the memory's rate: 1.05 times.
constexpr double kShareOfMemory = 1 - 1 / 1.05;
// The bytes that move to or from memory for each byte that arrives over tcp, the transport that
// moves the most: the network writes it, the receiver reads it, and writes the block, whose lines
// are read before. The checksum then finds them in the cache.
constexpr double kMovedPerByte = 4;
// The bound of memory that is read at 8.4 GB/s, less than one thread of a current server reads.
constexpr double kMinReceiveRate = 0.1e9;

}  // namespace

StatusOr<HostPort> AdvertisedHostPort(const config::WorkerConfig& config) {
  const std::string& text = config.kv_advertise();
  const bool bracketed = text.front() == '[';
  const bool with_port = bracketed ? text.back() != ']' : std::ranges::count(text, ':') == 1;
  // Only a host, which may be an IPv6 address with or without brackets.
  const std::string host = bracketed && !with_port ? text.substr(1, text.size() - 2) : text;
  if (!with_port && !host.empty()) return HostPort{host, 0};
  StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return Annotate(parsed.status(), "kv_advertise");
  return parsed;
}

StatusOr<KvTransferOptions> TransferSettingsOf(const config::WorkerConfig& config,
                                               MemoryKind memory,
                                               Dma* dma,
                                               std::shared_ptr<const PeerProofs> proofs) {
  BATON_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(config.kv_listen()));
  KvTransferOptions options;
  options.dma = dma;
  options.transport.names = TransportsOf(config.transfer(), memory);
  options.transport.require_transport = config.transfer().require_transport();
  const auto tcp_port = static_cast<uint16_t>(config.transfer().tcp_port());
  options.transport.listen_address = HostPort{listen.host, tcp_port}.ToString();
  if (!config.kv_advertise().empty()) {
    BATON_ASSIGN_OR_RETURN(const HostPort told, AdvertisedHostPort(config));
    const auto& names = options.transport.names;
    if (std::ranges::find(names, "tcp") != names.end() &&
        !ParseTcpAddress(HostPort{told.host, 0}.ToString()).ok()) {
      return InvalidArgument(
          "kv_advertise has the host '{}'; it must be an IP address such as 10.0.0.7, because the "
          "transport tcp takes no names",
          told.host);
    }
    options.transport.advertise_host = told.host;
  }
  options.transport.authenticate_frames = config.transfer().tcp_authenticate_frames();
  options.transport.proofs = std::move(proofs);
  options.transport.verbs = VerbsOptionsOf(config.transfer().verbs());
  options.transport.receive_bytes_per_second = static_cast<uint64_t>(
      std::max(0.0, config.transfer().max_receive_gigabytes_per_second()) * 1e9);
  options.times.lease = FromSeconds(config.transfer().progress_timeout_seconds());
  options.times.drain = FromSeconds(config.transfer().drain_timeout_seconds());
  options.checksums = config.transfer().checksums();
  return options;
}

uint64_t ReceiveRateWhileComputing(const config::WorkerConfig& config,
                                   MemoryKind memory,
                                   const std::function<double(int threads)>& measure) {
  if (config.transfer().max_receive_gigabytes_per_second() >= 0 || memory != MemoryKind::kHost)
    return 0;
  const int threads = config.engine().threads();
  const double rate = measure(threads > 0 ? threads : AllowedProcessors());
  const double bound = std::max(kMinReceiveRate, rate * kShareOfMemory / kMovedPerByte);
  kLog.Info(
      "memory is read at {:.1f} GB/s; KV arrives at up to {:.3f} GB/s while a sequence is "
      "computed",
      rate / 1e9,
      bound / 1e9);
  return static_cast<uint64_t>(bound);
}

Status UseOwnAddresses(const config::WorkerConfig& config, KvTransferOptions& options) {
  BATON_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(config.kv_listen()));
  const bool any = listen.host == "0.0.0.0" || listen.host == "::";
  if (!any && !IsLoopback(listen.host)) {
    return InvalidArgument(
        "kv_listen is {}, an address of one host; a worker with ranks on several hosts needs "
        "0.0.0.0 or [::]",
        config.kv_listen());
  }
  // The advertised host is the leader's. Empty: the address on which this rank listens or, as that
  // is a wildcard, the first address of this host.
  options.transport.advertise_host.clear();
  return OkStatus();
}

}  // namespace baton

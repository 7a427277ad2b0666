#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/host_port.h"
#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "kernels/device.h"
#include "kernels/dma.h"
#include "kernels/memory_rate.h"
#include "kvtransfer/options.h"
#include "proto/config.pb.h"

// How a worker moves KV, as its configuration says: the same on all of its ranks, except for the
// addresses.
namespace baton {

// Parses kv_advertise, which must not be empty. The port is 0 when kv_advertise is only a host.
StatusOr<HostPort> AdvertisedHostPort(const config::WorkerConfig& config);

// The options of a KvSender or KvReceiver, without the worker's identity, its layout and its
// shards. `memory` and `dma` are those of the arenas; `proofs` those of the cluster.
StatusOr<KvTransferOptions> TransferSettingsOf(const config::WorkerConfig& config,
                                               MemoryKind memory,
                                               Dma* dma,
                                               std::shared_ptr<const PeerProofs> proofs);

// The rate in bytes per second at which KV may arrive while the engine computes: 0 unless
// max_receive_gigabytes_per_second is -1 and the arenas are in host memory. Then it is a part of
// the rate that `measure` tells for a number of threads, but at least 0.1 GB/s, because a
// measurement that other processes disturb would hold up hand-offs until the worker ends.
// MeasureMemoryRate takes about 0.1 s.
uint64_t ReceiveRateWhileComputing(
    const config::WorkerConfig& config,
    MemoryKind memory,
    const std::function<double(int threads)>& measure = [](int threads) {
      return MeasureMemoryRate(threads);
    });

// Changes the addresses in `options`, which are those of the leader's host, to those of this host:
// a follower on another host listens on its own host's address. InvalidArgument when the leader
// listens on an address that this host cannot have.
Status UseOwnAddresses(const config::WorkerConfig& config, KvTransferOptions& options);

}  // namespace baton

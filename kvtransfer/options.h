#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "kernels/dma.h"

namespace baton {

// How long each side waits. All are durations: clocks of two machines are never compared.
struct SessionTimes {
  Duration renew = std::chrono::milliseconds(500);  // RENEW, and repeats of unanswered messages
  Duration lease = std::chrono::seconds(3);         // silence after which a peer counts as lost
  Duration drain = std::chrono::seconds(1);         // for a drain; then the fence
  Duration fence = std::chrono::seconds(1);         // for a fence; then quarantine
};

// The memory of one rank of this process: block-major, `block_count` blocks of `shard`.
struct LocalShard {
  KvShard shard;
  const Buffer* arena = nullptr;  // outlives the sender or receiver
  uint32_t block_count = 0;
};

struct TransportOptions {
  // In order of preference; the first that reaches the peer is used. "cuda_ipc", "shm", "tcp".
  std::vector<std::string> names = {"cuda_ipc", "shm", "tcp"};
  // When set, the only one that may be used: a peer it does not reach is refused.
  std::string require_transport;
  // tcp, receiving side: where to listen; port 0 takes a free one.
  std::string listen_address = "0.0.0.0:0";
  // tcp, receiving side: the host that peers connect to; empty: derived from listen_address, or
  // this machine's own address when that is a wildcard.
  std::string advertise_host;
  uint32_t max_connections = 1024;  // of one endpoint
  Duration connect_timeout = std::chrono::seconds(3);
  Duration stall_timeout = std::chrono::seconds(10);  // a peer silent in mid-frame is cut off
  // cuda_ipc, receiving side: for a peer to confirm that it writes no more.
  Duration fence_timeout = std::chrono::seconds(2);
};

class Transport;

// What KvSender and KvReceiver need to know of their worker.
struct KvTransferOptions {
  WorkerId worker;
  BootId boot;
  Hash128 model_fingerprint;
  KvLayout layout;
  std::vector<LocalShard> shards;  // at least one
  // How the arenas are reached when they are a GPU's memory (Backend::dma); null for host memory.
  Dma* dma = nullptr;
  TransportOptions transport;
  SessionTimes times;
  bool checksums = true;         // receiver: SEAL must carry them
  uint32_t max_sessions = 4096;  // live at one time
  size_t op_bytes = 0;  // sender: size of a write, at least one piece; 0: as the transport likes
  size_t flight_bytes = 0;  // sender: outstanding per channel; 0: as the transport likes
  // Makes the transport of a name; empty: MakeTransport. For transports under test.
  std::function<StatusOr<std::unique_ptr<Transport>>(std::string_view name)> make_transport;
  // Told, in one line, of every connection or session that ended for a bad reason. Called on the
  // internal thread; must not block. May be empty.
  std::function<void(std::string_view)> log;
};

}  // namespace baton

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "kernels/dma.h"

namespace baton {

// How long each side waits. All values are durations: clocks of two machines are never compared.
struct SessionTimes {
  Duration renew = std::chrono::milliseconds(500);  // interval of RENEW and of repeated messages
  Duration lease = std::chrono::seconds(3);         // silence after which a peer is lost
  Duration drain = std::chrono::seconds(1);         // longest drain; the fence follows
  Duration fence = std::chrono::seconds(1);         // longest fence; quarantine follows
};

// The KV memory of one rank of this worker: block-major, `block_count` blocks of `shard`.
struct LocalShard {
  KvShard shard;
  // Must outlive the sender or receiver. Null: on another host; then the options need a data plane
  // that reaches it (make_data_plane).
  const Buffer* arena = nullptr;
  uint32_t block_count = 0;
};

// Settings of the transport "verbs".
struct VerbsOptions {
  // The RDMA devices in the order of the rails: "mlx5_0", or "mlx5_0:2" for port 2. Empty:
  // those nearest to the GPU, or for host memory the first one; only devices with an active port.
  std::vector<std::string> devices;
  // Index of the GID. -1: the best GID for RoCE v2 (IPv4 before IPv6), or the first GID for
  // InfiniBand.
  int gid_index = -1;
  uint32_t queue_pairs = 4;   // of a channel on each rail, 1 to 16
  uint8_t traffic_class = 0;  // of the packets: RoCE's DSCP in the upper six bits
  // Receiving side: the TCP port for the frames, at the host of listen_address. 0: a free port.
  uint16_t listen_port = 0;
};

// Settings of the transport "nccl".
struct NcclOptions {
  // How long the two ends may take to connect, from the first frame to the communicator.
  Duration connect_timeout = std::chrono::seconds(20);
  // How long posted sends and receives may make no progress before they are aborted.
  Duration stall_timeout = std::chrono::seconds(5);
};

struct TransportOptions {
  // cuda_ipc and verbs: this worker, as its HELLO says. Its channels tell it to the receiver, which
  // then gives them the windows of their hand-offs at once (WriteWindow::peer). 0: not told.
  BootId boot;
  // Names for MakeTransport in order of preference; the first transport that reaches the peer is
  // used.
  std::vector<std::string> names = {"cuda_ipc", "shm", "tcp"};
  // If set, the only transport that may be used: a peer that it does not reach is refused.
  std::string require_transport;
  // tcp, verbs and nccl, receiving side: the address to listen on; port 0 picks a free port. verbs
  // and nccl listen on other ports of the same host.
  std::string listen_address = "0.0.0.0:0";
  // tcp, verbs and nccl, receiving side: the host that peers connect to. Empty: the host of
  // listen_address, or an address of this machine if that is a wildcard.
  std::string advertise_host;
  uint32_t max_connections = 1024;  // per endpoint
  Duration connect_timeout = std::chrono::seconds(3);
  // A peer that is silent this long before its preface or inside a frame is disconnected.
  Duration stall_timeout = std::chrono::seconds(10);
  // tcp, verbs and nccl: how the two ends of a connection prove who they are. Null: they do not.
  std::shared_ptr<const PeerProofs> proofs;
  // tcp: every message of the data connection has a tag that proves that it comes from the peer and
  // was not changed, left out, repeated or moved. Needs `proofs`. A receiver then refuses peers
  // without tags.
  bool authenticate_frames = false;
  // cuda_ipc and verbs, receiving side: how long a peer may take to confirm that it writes no more.
  // nccl: how long this process's own copies may take to end.
  Duration fence_timeout = std::chrono::seconds(2);
  // Receiving side: the most bytes per second that may arrive in one rank's memory. 0: no bound.
  // KvReceiver::SetReceiveRate replaces it.
  uint64_t receive_bytes_per_second = 0;
  VerbsOptions verbs;
  NcclOptions nccl;
};

class DataPlane;
class Transport;

// The configuration of a KvSender or KvReceiver.
struct KvTransferOptions {
  WorkerId worker;
  BootId boot;
  Hash128 model_fingerprint;
  Hash128 weights;  // of all bytes of the weights
  KvLayout layout;
  std::vector<LocalShard> shards;  // at least one
  // Accesses arenas in a GPU's memory (Backend::dma); null for host memory.
  Dma* dma = nullptr;
  TransportOptions transport;
  SessionTimes times;
  bool checksums = true;         // receiver: SEAL must carry checksums
  uint32_t max_sessions = 4096;  // live at the same time
  // Sender: bytes of one write, at least one piece, and outstanding bytes per channel. 0: the
  // defaults of the transport (TransportCaps).
  size_t op_bytes = 0;
  size_t flight_bytes = 0;
  // Makes the transport of the given name; empty: MakeTransport. For transports under test.
  std::function<StatusOr<std::unique_ptr<Transport>>(std::string_view name)> make_transport;
  // Makes the data plane, which listens for a receiver; empty: LocalDataPlane. For ranks in other
  // processes, and for data planes under test.
  std::function<StatusOr<std::unique_ptr<DataPlane>>(const KvTransferOptions& options, bool listen)>
      make_data_plane;
  // Called on the internal thread when a session has carried out what it does in a state (Name of
  // SenderState, ReceiverState). For tests that end or stop the process there. May be empty.
  std::function<void(std::string_view state)> on_state;
  // Receives log lines, one line per call: connections and sessions that ended with an error.
  // Called on the internal thread, and during Create on the caller's; must not block. May be empty.
  std::function<void(std::string_view)> log;
  // As `log`, for lines about what this machine has: the devices in use, and the transports that
  // cannot be used.
  std::function<void(std::string_view)> log_info;
};

// InvalidArgument that names the invalid part: layout, shards, arenas too small for their blocks,
// times.
Status ValidateOptions(const KvTransferOptions& options);

}  // namespace baton

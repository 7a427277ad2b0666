#pragma once

#include <cstdint>
#include <variant>

#include "common/base/ids.h"
#include "common/cluster/request.h"
#include "common/cluster/worker_info.h"

// What a router asks of a worker (proto/worker.proto, ToWorker).
namespace baton {

// A request to compute. `request.kind` says how; `session` and `peer` are set for kPrefill and
// kDecode.
struct DispatchCommand {
  Request request;
  SessionId session;
  Peer peer;

  bool operator==(const DispatchCommand&) const = default;
};

struct CancelCommand {
  RequestId id;
  Epoch epoch;
  // The request was answered in full, for example by a stop string: the worker counts it as done.
  bool complete = false;

  bool operator==(const CancelCommand&) const = default;
};

// One sample's client has all its tokens; the other samples go on.
struct StopSampleCommand {
  RequestId id;
  Epoch epoch;
  int32_t sample = 0;

  bool operator==(const StopSampleCommand&) const = default;
};

// Offers the KV of a refused hand-off, which the prefill worker keeps under (id, epoch), to another
// dispatch of the request under a new session. That dispatch has its own epoch, because the refused
// one may not have ended yet, perhaps on the same worker.
struct RedirectCommand {
  RequestId id;
  Epoch epoch;
  SessionId session;
  Epoch decode_epoch;  // of the decode worker's dispatch, and of the session
  Peer peer;
  bool peer_first = false;  // as Request::peer_first, with the new peer

  bool operator==(const RedirectCommand&) const = default;
};

// Send all cache events from a CLEARED on.
struct SnapshotCommand {
  bool clear = false;  // remove all blocks from the prefix cache before

  bool operator==(const SnapshotCommand&) const = default;
};

struct DrainWorkerCommand {
  bool keep = false;  // the process stays when nothing is left; else it ends with status 0

  bool operator==(const DrainWorkerCommand&) const = default;
};

// Names a decode worker to a prefill worker, which connects to it before the first request.
struct ConnectCommand {
  Peer peer;

  bool operator==(const ConnectCommand&) const = default;
};

using WorkerCommand = std::variant<DispatchCommand,
                                   CancelCommand,
                                   StopSampleCommand,
                                   RedirectCommand,
                                   SnapshotCommand,
                                   DrainWorkerCommand,
                                   ConnectCommand>;

}  // namespace baton

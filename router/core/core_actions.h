#pragma once

#include <utility>
#include <vector>

#include "common/cluster/commands.h"
#include "common/cluster/stall_watch.h"
#include "router/core/replay_result.h"
#include "router/routing/pair_book.h"
#include "router/types.h"

namespace baton::router {

// The actions of RouterCore, which its caller carries out: commands to send to workers, and events
// to deliver to the clients of requests. Each worker receives its commands in their order here, and
// each client its events: the tokens of each sample by index, each once, and one Outcome as the
// last event. Actions for different receivers may be carried out in any order, commands before or
// after events.
//
// A command is for the worker that has the slot when the command is added. The caller therefore
// carries out the actions of a Leave before a Join, which may give the slot to another worker. When
// Join replaces the stream of a joined worker, the commands before SnapshotCommand were for the old
// stream, and may be dropped. An action does not fail: a worker that does not receive its commands
// leaves, and a client that has gone cancels its request. The changes of pairs are for the log, the
// results of replays for the log and the metrics.
struct CoreActions {
  std::vector<std::pair<WorkerSlot, WorkerCommand>> commands;
  std::vector<std::pair<RequestId, ClientEvent>> events;
  std::vector<PairChange> pair_changes;
  std::vector<ReplayResult> replays;
  StallWatch::Change stall = StallWatch::Change::kNone;  // for the log
};

}  // namespace baton::router

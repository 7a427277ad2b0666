#pragma once

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/engine/listener.h"
#include "common/worker/router_events.h"
#include "common/worker/worker_types.h"
#include "proto/worker.pb.h"

// Converts between proto/worker.proto and our own types. Messages of a router are checked as if the
// router were not trusted: InvalidArgument names the field, its value, and what would be right.
namespace baton {

// `now` becomes the request's arrival time. The engine checks what depends on the model: token ids
// and lengths.
StatusOr<DispatchOrder> FromProto(const worker::v1::Dispatch& dispatch,
                                  const WorkerIdentity& self,
                                  Time now);
StatusOr<RedirectOrder> FromProto(const worker::v1::Redirect& redirect);
StatusOr<KvPeer> FromProto(const worker::v1::Peer& peer);

worker::v1::Join ToProto(const WorkerIdentity& identity);
worker::v1::Heartbeat ToProto(const LoadReport& load);
worker::v1::Token ToProto(const TokenOutput& output);
worker::v1::Handoff ToProto(const HandoffReport& report);
worker::v1::CacheEvent ToProto(const CacheEvent& event);

}  // namespace baton

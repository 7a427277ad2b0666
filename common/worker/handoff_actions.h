#pragma once

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/cluster/reports.h"
#include "common/cluster/request.h"
#include "common/worker/router_key.h"
#include "kvtransfer/messages/messages.h"

// The actions that the machines of both roles request: PrefillHandoffs and DecodeHandoffs.
namespace baton {

struct ReportHandoff {
  RouterKey router;
  WorkerId peer;  // the worker at the other end of the hand-off
  HandoffReport report;
};
struct ReportFailure {
  RouterKey router;
  RequestKey request;
  Status status;
};
// The other worker of the hand-off has its blocks: the engine may take blocks for the request.
struct StartRequest {
  RequestKey request;
};
// Cancel the request in the engine; the router already knows its end. `complete`: the request was
// answered in full.
struct DropRequest {
  RequestKey request;
  bool complete = false;
};
// End the engine's lease on the request's blocks: no peer can read or write them any more.
struct ReleaseKv {
  RequestKey request;
};
// End the session in the sender or the receiver.
struct AbortSession {
  SessionKey session;
  Status reason;
};

// A report with the fields that every outcome has.
inline HandoffReport ReportOf(const RequestKey& request,
                              HandoffReport::Outcome outcome,
                              const Status& status) {
  HandoffReport report;
  report.id = request.first;
  report.epoch = request.second;
  report.outcome = outcome;
  report.status = status;
  return report;
}

inline Status AlreadyKnown(const RequestKey& request, const SessionKey& session) {
  return MakeStatus(StatusCode::kAlreadyExists,
                    "request {} or session {} of epoch {} already exists on this worker",
                    request.first,
                    session.first,
                    session.second);
}

}  // namespace baton

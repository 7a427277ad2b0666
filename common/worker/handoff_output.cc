#include "common/worker/handoff_output.h"

#include "common/log/log.h"

namespace baton {
namespace {

const Logger kLog("worker");

}  // namespace

void HandoffOutput::Do(const ReportHandoff& action) {
  const HandoffReport& report = action.report;
  if (report.outcome == HandoffReport::Outcome::kCommitted) {
    PeerTraffic& traffic = traffic_[action.peer];
    if (!report.transport.empty() && traffic.transport != report.transport) {
      traffic.transport = report.transport;
      kLog.Info("hand-offs with worker {} use {}", action.peer, report.transport);
    }
    traffic.bytes += report.bytes;
    ++traffic.transfers;
  }
  worker_.Report(action.router, report);
}

void HandoffOutput::Do(const ReportFailure& action) {
  const auto& [id, epoch] = action.request;
  worker_.ReportFailure(action.router, id, epoch, action.status);
}

void HandoffOutput::Do(const StartRequest& action) {
  worker_.engine().PeerReady(action.request.first, action.request.second);
}

void HandoffOutput::Do(const DropRequest& action) {
  const auto& [id, epoch] = action.request;
  if (action.complete) {
    worker_.DropComplete(id, epoch);
  } else {
    worker_.Drop(id, epoch);
  }
}

void HandoffOutput::Do(const ReleaseKv& action) {
  worker_.engine().ReleaseKv(action.request.first, action.request.second);
}

}  // namespace baton

#include "router/links/worker_link_server.h"

#include <span>
#include <utility>

#include "common/base/clock.h"
#include "common/cluster/member_id.h"
#include "common/cluster/wire/command_wire.h"
#include "common/cluster/wire/join_wire.h"
#include "common/cluster/wire/report_wire.h"
#include "common/log/log.h"

namespace baton::router {
namespace {

constexpr size_t kMessageBytes = size_t{4} << 20;

// The part of a worker id that failed its check which may be logged.
std::string LoggedId(const std::string& id) {
  return HasControlCharacter(id) ? "" : id.substr(0, kMaxMemberId);
}

const Logger kLog("router");

}  // namespace

Status WorkerLinkServer::OnMessage(const worker::v1::ToRouter& message) {
  if (worker_id_.empty()) return OnJoin(message);
  StatusOr<WorkerReport> report = ReportFromProto(message);
  if (!report.ok()) return Annotate(report.status(), fmt::format("worker {}", worker_id_));
  core_.Report(shared_from_this(), *std::move(report));
  return OkStatus();
}

Status WorkerLinkServer::OnJoin(const worker::v1::ToRouter& message) {
  StatusOr<WorkerInfo> info = WorkerInfoFromProto(message);
  if (!info.ok()) {
    core_.Refuse(WorkerId(LoggedId(message.join().worker_id())), address_, info.status());
    return info.status();
  }
  worker_id_ = info->id.value();
  info->address = address_;
  core_.Join(*std::move(info),
             shared_from_this(),
             [self = shared_from_this()](const StatusOr<WorkerSlot>& slot) {
               if (!slot.ok()) return self->Drop(slot.status());
               self->welcomed_ = true;
               self->stream_->Send(WelcomeToProto(self->welcome_));
             });
  return OkStatus();
}

void WorkerLinkServer::OnClosed(const Status& why) {
  if (worker_id_.empty()) return;
  // The refusal of a worker was logged before.
  if (!why.ok() && welcomed_) {
    kLog.Warning("the stream of worker {} ended: {}", worker_id_, Message(why));
  }
  core_.Left(shared_from_this());
}

bool WorkerLinkServer::Send(std::vector<WorkerCommand> commands) {
  // Long prompts are distributed over several messages, because both ends bound a message's size.
  const Time now = core_.clock().Now();
  std::span<const WorkerCommand> rest = commands;
  while (!rest.empty()) {
    size_t count = 0;
    size_t bytes = 0;
    while (count < rest.size() && (count == 0 || bytes < kMessageBytes)) {
      if (const auto* dispatch = std::get_if<DispatchCommand>(&rest[count])) {
        bytes += dispatch->request.tokens.size() * sizeof(TokenId);
      }
      ++count;
    }
    if (!stream_->Send(CommandsToProto(rest.first(count), now))) return false;
    rest = rest.subspan(count);
  }
  return true;
}

void WorkerLinkServer::Drop(const Status& why) {
  stream_->Close(why);
}

}  // namespace baton::router

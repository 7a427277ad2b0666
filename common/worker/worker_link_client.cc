#include "common/worker/worker_link_client.h"

#include <algorithm>
#include <utility>

#include "common/cluster/wire/command_wire.h"
#include "common/cluster/wire/join_wire.h"
#include "common/cluster/wire/report_wire.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace pb = worker::v1;

constexpr size_t kQueuedMessages = 8192;
constexpr Duration kMinHeartbeat = std::chrono::milliseconds(10);
// Heartbeats also keep gRPC's threads awake.
constexpr Duration kMaxHeartbeat = std::chrono::milliseconds(900);

// Turns the end of a stream that never joined into an error that says what to change.
Status Explain(const Status& status) {
  if (status.ok()) {
    return Status(StatusCode::kUnavailable, "the router ended the stream without giving a reason");
  }
  if (status.code() != StatusCode::kUnimplemented) return status;
  return Status(StatusCode::kUnimplemented,
                "no router takes workers there; worker_listen is another port");
}

const Logger kLog("worker");

}  // namespace

WorkerLinkClient::WorkerLinkClient(RouterKey key,
                                   std::string address,
                                   const WorkerLinkContext& context)
    : key_(key),
      address_(std::move(address)),
      context_(context),
      opened_(context.clock.Now()),
      self_(std::make_shared<WorkerLinkClient*>(this)) {
  WorkerLoop& loop = context_.loop;
  StreamHandler<pb::ToWorker> handler;
  handler.on_message = [&loop, self = self_](pb::ToWorker message) {
    const bool taken =
        loop.Post([self, message = std::make_shared<pb::ToWorker>(std::move(message))] {
          if (*self != nullptr) (*self)->OnMessage(*message);
        });
    return taken ? OkStatus()
                 : Status(StatusCode::kResourceExhausted,
                          "the router sends messages faster than the worker handles them");
  };
  handler.on_closed = [&loop, self = self_](const Status& status) {
    loop.PostInternal([self, status] {
      if (*self != nullptr) (*self)->OnEnded(status);
    });
  };
  std::shared_ptr<pb::WorkerLink::Stub> stub =
      pb::WorkerLink::NewStub(MakeChannel(address_, context_.limits));
  stream_ = Stream::Create(
      [stub](grpc::ClientContext* call, grpc::ClientBidiReactor<pb::ToRouter, pb::ToWorker>* end) {
        stub->async()->Open(call, end);
      },
      std::move(handler),
      kQueuedMessages,
      context_.limits.proofs);
  Stream::Dial(stream_);
  stream_->Send(JoinToProto(context_.self));
}

WorkerLinkClient::~WorkerLinkClient() {
  *self_ = nullptr;
  stream_->Close(OkStatus());
  context_.closing.Add("router " + address_, std::move(stream_));
}

void WorkerLinkClient::Add(const TokenOutput& token) {
  pending_.tokens.push_back(token);
  has_pending_ = true;
}

void WorkerLinkClient::Add(const FinishedReport& report) {
  pending_.finished.push_back(report);
  has_pending_ = true;
}

void WorkerLinkClient::Add(const FailedReport& report) {
  pending_.failed.push_back(report);
  has_pending_ = true;
}

void WorkerLinkClient::Add(const HandoffReport& report) {
  pending_.handoffs.push_back(report);
  has_pending_ = true;
}

void WorkerLinkClient::Add(const CacheEvent& event) {
  pending_.cache_events.push_back(event);
  has_pending_ = true;
}

void WorkerLinkClient::AddDrain() {
  pending_.drain = true;
  has_pending_ = true;
}

void WorkerLinkClient::BeatIfDue(Time now) {
  if (!joined_ || now < next_heartbeat_) return;
  next_heartbeat_ = now + heartbeat_;
  pending_.load = context_.events.Load();
  has_pending_ = true;
}

void WorkerLinkClient::Flush() {
  if (!has_pending_ || ended_) return;
  has_pending_ = false;
  if (!stream_->Send(ReportToProto(std::exchange(pending_, {})))) {
    Close(Status(StatusCode::kResourceExhausted, "the router does not read the worker's messages"));
  }
}

void WorkerLinkClient::Leave() {
  leaves_ = true;
  Flush();
  stream_->Flush();
}

void WorkerLinkClient::Close(const Status& why) {
  stream_->Close(why);
}

void WorkerLinkClient::OnMessage(const pb::ToWorker& message) {
  if (ended_) return;
  if (!joined_) {
    const StatusOr<Welcome> welcome = WelcomeFromProto(message);
    if (!welcome.ok()) return Close(Annotate(welcome.status(), "router " + address_));
    joined_ = true;
    heartbeat_ = std::clamp(welcome->heartbeat, kMinHeartbeat, kMaxHeartbeat);
    next_heartbeat_ = context_.clock.Now();
    kLog.Info("joined router {} at {}", welcome->router_id, address_);
    BeatIfDue(next_heartbeat_);
  }
  DecodedCommands decoded = CommandsFromProto(message, context_.clock.Now());
  for (const FailedReport& refused : decoded.refused) Add(refused);
  for (WorkerCommand& command : decoded.commands) Run(std::move(command));
}

void WorkerLinkClient::Run(WorkerCommand command) {
  RouterEvents& events = context_.events;
  if (auto* dispatch = std::get_if<DispatchCommand>(&command)) {
    events.OnDispatch(key_, std::move(*dispatch));
  } else if (const auto* redirect = std::get_if<RedirectCommand>(&command)) {
    events.OnRedirect(key_, *redirect);
  } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
    events.OnCancel(key_, *cancel);
  } else if (const auto* stop = std::get_if<StopSampleCommand>(&command)) {
    events.OnStopSample(key_, *stop);
  } else if (const auto* connect = std::get_if<ConnectCommand>(&command)) {
    events.OnPeer(connect->peer);
  } else if (const auto* drain = std::get_if<DrainWorkerCommand>(&command)) {
    events.OnDrain(drain->keep);
  } else {
    events.OnSnapshotWanted(std::get<SnapshotCommand>(command).clear);
  }
}

void WorkerLinkClient::OnEnded(const Status& status) {
  if (joined_ && status.ok()) {
    if (leaves_) {
      kLog.Info("left router {}", address_);
    } else {
      kLog.Warning("router {} closed the stream in order; it may be shutting down", address_);
    }
  } else if (joined_) {
    kLog.Warning("lost router {}: {}", address_, status.ToString());
  } else {
    refusal_ = Explain(status);
  }
  ended_ = true;
  joined_ = false;
  context_.events.OnRouterLost(key_);
}

}  // namespace baton

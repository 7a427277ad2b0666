#include "kvtransfer/group/group_data_plane.h"

#include <utility>

#include "kvtransfer/data_plane/local_data_plane.h"
#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/group/group_peer_writer.h"
#include "kvtransfer/messages/codec.h"

namespace baton {
namespace {

std::string EncodeHello(const Hello& hello) {
  return EncodeEnvelope({SessionId(0), Epoch(0), hello});
}

}  // namespace

// The events of this process's own arenas.
class GroupDataPlane::LocalEvents final : public WindowListener {
 public:
  LocalEvents(GroupDataPlane& plane, WindowListener& listener)
      : plane_(plane), listener_(listener) {}
  void OnArrival(const SessionKey& session,
                 const PieceArrival& piece,
                 std::string_view transport,
                 bool /*polls_for_seal*/) override {
    listener_.OnArrival(session, piece, transport, /*polls_for_seal=*/false);
  }
  void OnMisplaced(const SessionKey& session, const Status& error) override {
    listener_.OnMisplaced(session, error);
  }
  void OnNote(const SessionKey& session, std::string_view note) override {
    listener_.OnNote(session, note);
  }
  void OnWindowsClosed(const SessionKey& session, const Status& status) override {
    plane_.OnClosed(session, status, listener_);
  }

 private:
  GroupDataPlane& plane_;
  WindowListener& listener_;
};

StatusOr<std::unique_ptr<GroupDataPlane>> GroupDataPlane::Create(const KvTransferOptions& options,
                                                                 bool listen,
                                                                 ShardPort& port) {
  std::unique_ptr<GroupDataPlane> plane(new GroupDataPlane(options));
  BATON_RETURN_IF_ERROR(plane->Open(listen, port));
  return plane;
}

Status GroupDataPlane::Open(bool listen, ShardPort& port) {
  BATON_ASSIGN_OR_RETURN(
      calls_, ShardCalls::Create(port, listen ? PlaneRole::kReceiver : PlaneRole::kSender));
  BATON_ASSIGN_OR_RETURN(local_, LocalDataPlane::Create(options_, listen));
  shards_ = local_->shards();
  Hello ours;
  ours.worker = options_.worker;
  ours.boot = options_.boot;
  ours.model_fingerprint = options_.model_fingerprint;
  ours.weights = options_.weights;
  ours.layout = options_.layout;
  ours.shards = shards_;
  for (KvShardInfo& shard : ours.shards) shard.endpoints.clear();
  BATON_ASSIGN_OR_RETURN(
      const std::vector<ShardEvent> opened,
      calls_->Call({.kind = ShardCommand::Kind::kOpen, .hello = EncodeHello(ours)}));
  for (size_t i = 0; i < opened.size(); ++i) {
    shards_[port.shards()[i]].endpoints = opened[i].endpoints;
  }
  return OkStatus();
}

std::vector<int> GroupDataPlane::wait_fds() const {
  std::vector<int> fds = local_->wait_fds();
  fds.push_back(calls_->wait_fd());
  return fds;
}

StatusOr<std::unique_ptr<PeerWriter>> GroupDataPlane::NewWriter(const Hello& theirs) {
  std::vector<KvShard> ours;
  for (const KvShardInfo& info : shards_) ours.push_back(info.shard);
  BATON_ASSIGN_OR_RETURN(const std::vector<KvLink> links,
                         PlanLinks(options_.layout, ours, ShardsOf(theirs)));
  std::vector<KvLink> elsewhere;
  for (const KvLink& link : links) {
    if (options_.shards[link.source].arena == nullptr) elsewhere.push_back(link);
  }
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<PeerWriter> local, local_->NewWriter(theirs));
  const uint64_t number = calls_->NewWriter();
  BATON_ASSIGN_OR_RETURN(const std::vector<ShardEvent> answers,
                         calls_->Call({.kind = ShardCommand::Kind::kNewWriter,
                                       .writer = number,
                                       .hello = EncodeHello(theirs)}));
  return std::make_unique<GroupPeerWriter>(
      *calls_, number, std::move(local), std::move(elsewhere), answers);
}

Status GroupDataPlane::OpenWindows(const SessionKey& session, WindowGrant grant) {
  sessions_[session] = {.open = 1 + calls_->ranks()};
  ShardCommand command;
  command.kind = ShardCommand::Kind::kOpenWindows;
  command.session = session;
  command.terms.window_key = grant.window_key;
  command.granted = grant.blocks;
  command.boot = grant.peer->boot;
  command.sources = grant.peer->sources;
  Status status = local_->OpenWindows(session, std::move(grant));
  status.Update(calls_->Call(std::move(command)).status());
  return status;
}

void GroupDataPlane::SetReceiveRate(uint64_t bytes_per_second) {
  local_->SetReceiveRate(bytes_per_second);
  ShardCommand command;
  command.kind = ShardCommand::Kind::kSetReceiveRate;
  command.terms.bytes_per_second = bytes_per_second;
  calls_->Send(command);
}

void GroupDataPlane::CloseWindows(const SessionKey& session) {
  if (!sessions_.contains(session)) return;
  local_->CloseWindows(session);
  calls_->Send({.kind = ShardCommand::Kind::kCloseWindows, .session = session});
}

void GroupDataPlane::Poll(Time now, WindowListener& listener) {
  LocalEvents events(*this, listener);
  local_->Poll(now, events);
  for (const ShardEvent& event : calls_->TakeWindowEvents()) OnEvent(event, listener);
}

void GroupDataPlane::OnEvent(const ShardEvent& event, WindowListener& listener) {
  switch (event.kind) {
    case ShardEvent::Kind::kArrival:
      return listener.OnArrival(event.session,
                                {.link = event.link,
                                 .first = event.first,
                                 .count = event.pieces,
                                 .bytes = event.bytes,
                                 .checksums = event.checksums},
                                event.transport,
                                /*polls_for_seal=*/false);
    case ShardEvent::Kind::kMisplaced:
      return listener.OnMisplaced(event.session, event.status);
    case ShardEvent::Kind::kWindowsClosed:
      return OnClosed(event.session, event.status, listener);
    default:
      return;
  }
}

void GroupDataPlane::OnClosed(const SessionKey& session,
                              const Status& status,
                              WindowListener& listener) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  SessionWindows& windows = found->second;
  if (!status.ok()) {
    if (!std::exchange(windows.unfenced, true)) listener.OnWindowsClosed(session, status);
    return;
  }
  if (--windows.open > 0) return;
  sessions_.erase(found);
  listener.OnWindowsClosed(session, OkStatus());
}

}  // namespace baton

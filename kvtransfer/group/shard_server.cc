#include "kvtransfer/group/shard_server.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/data_plane/local_data_plane.h"
#include "kvtransfer/messages/codec.h"

namespace baton {
namespace {

constexpr size_t kMaxPosted = size_t{1} << 16;
// Transports check the time-outs of silent peers when they are polled.
constexpr Duration kTick = std::chrono::milliseconds(100);

StatusOr<Hello> HelloIn(const std::string& text) {
  BATON_ASSIGN_OR_RETURN(Envelope envelope, DecodeEnvelope(text));
  auto* const hello = std::get_if<Hello>(&envelope.message);
  if (hello == nullptr) return InvalidArgument("{} came instead of HELLO", Name(envelope.message));
  return std::move(*hello);
}

}  // namespace

// A writer to one peer, whose progress goes to the leading rank under the writer's number.
class ShardServer::Writer final : public WriteListener {
 public:
  Writer(const ShardServer& server, uint64_t number, std::unique_ptr<PeerWriter> writer)
      : server_(server), number_(number), writer_(std::move(writer)) {}

  PeerWriter& peer() { return *writer_; }
  bool Poll(Time now) { return writer_->Poll(now, *this); }

  void OnPosted(const SessionKey& session,
                uint32_t link,
                uint32_t first,
                std::span<const uint64_t> checksums,
                uint64_t bytes) override {
    ShardEvent event = Event(ShardEvent::Kind::kPosted, session);
    event.link = link;
    event.first = first;
    event.checksums.assign(checksums.begin(), checksums.end());
    event.bytes = bytes;
    server_.Send(event);
  }
  void OnWritten(const SessionKey& session, uint32_t pieces, uint64_t bytes) override {
    ShardEvent event = Event(ShardEvent::Kind::kWritten, session);
    event.pieces = pieces;
    event.bytes = bytes;
    server_.Send(event);
  }
  void OnWriteLost(const SessionKey& session, uint32_t pieces, const Status& reason) override {
    ShardEvent event = Event(ShardEvent::Kind::kWriteLost, session);
    event.pieces = pieces;
    event.status = reason;
    server_.Send(event);
  }

 private:
  ShardEvent Event(ShardEvent::Kind kind, const SessionKey& session) const {
    ShardEvent event;
    event.kind = kind;
    event.writer = number_;
    event.session = session;
    return event;
  }

  const ShardServer& server_;
  const uint64_t number_;
  const std::unique_ptr<PeerWriter> writer_;
};

ShardServer::ShardServer(Options options) : options_(std::move(options)) {}

ShardServer::~ShardServer() {
  if (loop_) loop_->Stop();
}

void ShardServer::OnMessage(std::string_view message) {
  auto command = DecodeShardCommand(message);
  if (!command.ok()) {
    if (options_.transfer.log) options_.transfer.log(Message(command.status()));
    return;
  }
  if (command->kind == ShardCommand::Kind::kOpen) {
    ShardEvent event;
    const Status opened = Open(*command);
    if (opened.ok()) event.endpoints = data_plane_->shards()[options_.shard].endpoints;
    return Answer(*command, opened, std::move(event));
  }
  if (!loop_) return;
  loop_->PostAlways([this, command = *std::move(command)] { Do(command); });
}

Status ShardServer::Open(const ShardCommand& command) {
  if (loop_) return MakeStatus(StatusCode::kAlreadyExists, "the data plane is open already");
  BATON_ASSIGN_OR_RETURN(const Hello hello, HelloIn(command.hello));
  KvTransferOptions& transfer = options_.transfer;
  transfer.worker = hello.worker;
  transfer.boot = hello.boot;
  transfer.model_fingerprint = hello.model_fingerprint;
  transfer.weights = hello.weights;
  transfer.layout = hello.layout;
  transfer.shards.clear();
  for (const KvShardInfo& info : hello.shards) {
    transfer.shards.push_back({info.shard, nullptr, info.block_count});
  }
  if (options_.shard >= transfer.shards.size()) {
    return InvalidArgument(
        "shard {} of a worker of {} shards", options_.shard, transfer.shards.size());
  }
  transfer.shards[options_.shard].arena = options_.arena;
  const bool listen = options_.plane == PlaneRole::kReceiver;
  BATON_ASSIGN_OR_RETURN(data_plane_, LocalDataPlane::Create(transfer, listen));
  BATON_ASSIGN_OR_RETURN(loop_, EventLoop::Create(kMaxPosted));
  for (const int fd : data_plane_->wait_fds()) BATON_RETURN_IF_ERROR(loop_->Watch(fd));
  loop_->Start(listen ? "kv-receiver" : "kv-sender", [this](Time now) { return Iteration(now); });
  return OkStatus();
}

Time ShardServer::Iteration(Time now) {
  data_plane_->Poll(now, *this);
  bool more = false;
  for (const auto& [number, writer] : writers_) more = writer->Poll(now) || more;
  for (const auto& writer : departing_) more = writer->Poll(now) || more;
  std::erase_if(departing_, [](const auto& writer) { return writer->peer().idle(); });
  if (more) return now;
  Time wake = now + kTick;
  for (const auto& [number, writer] : writers_) wake = std::min(wake, writer->peer().wake_time());
  for (const auto& writer : departing_) wake = std::min(wake, writer->peer().wake_time());
  return wake;
}

void ShardServer::Answer(const ShardCommand& command,
                         const Status& status,
                         ShardEvent event) const {
  event.kind = ShardEvent::Kind::kAnswer;
  event.call = command.call;
  event.status = status;
  Send(event);
}

void ShardServer::Do(const ShardCommand& command) {
  switch (command.kind) {
    case ShardCommand::Kind::kNewWriter: {
      const auto hello = HelloIn(command.hello);
      if (!hello.ok()) return Answer(command, hello.status());
      auto writer = data_plane_->NewWriter(*hello);
      if (!writer.ok()) return Answer(command, writer.status());
      ShardEvent event;
      event.transport = (*writer)->transport_name();
      event.not_taken = (*writer)->not_taken().substr(0, kMaxStatusBytes);
      writers_[command.writer] =
          std::make_unique<Writer>(*this, command.writer, *std::move(writer));
      return Answer(command, OkStatus(), std::move(event));
    }
    case ShardCommand::Kind::kOpenWindows:
      return Answer(command, OpenWindows(command));
    case ShardCommand::Kind::kCloseWindows:
      return data_plane_->CloseWindows(command.session);
    case ShardCommand::Kind::kSetReceiveRate:
      return data_plane_->SetReceiveRate(command.terms.bytes_per_second);
    default:
      return DoForWriter(command);
  }
}

void ShardServer::DoForWriter(const ShardCommand& command) {
  const auto found = writers_.find(command.writer);
  if (found == writers_.end()) return;
  Writer& writer = *found->second;
  switch (command.kind) {
    case ShardCommand::Kind::kDropWriter:
      writer.peer().FenceAll();
      departing_.push_back(std::move(found->second));
      writers_.erase(found);
      break;
    case ShardCommand::Kind::kConnect: {
      const Status connected = writer.peer().Connect();
      if (!connected.ok() && options_.transfer.log) options_.transfer.log(Message(connected));
      break;
    }
    case ShardCommand::Kind::kEnqueue:
      writer.peer().Enqueue(command.session, command.terms, command.blocks);
      break;
    case ShardCommand::Kind::kStart:
      writer.peer().Start(command.session);
      break;
    case ShardCommand::Kind::kStop:
      writer.peer().Stop(command.session, writer);
      break;
    case ShardCommand::Kind::kRelease:
      writer.peer().Release(command.terms.window_key);
      break;
    case ShardCommand::Kind::kFence:
      writer.peer().Fence(command.session);
      break;
    case ShardCommand::Kind::kFenceAll:
      writer.peer().FenceAll();
      break;
    default:
      break;
  }
}

Status ShardServer::OpenWindows(const ShardCommand& command) {
  if (peer_ == nullptr || peer_->boot != command.boot || peer_->sources != command.sources) {
    PeerLinks peer = {.boot = command.boot, .sources = command.sources, .links = {}};
    std::vector<KvShard> ours;
    for (const LocalShard& shard : options_.transfer.shards) ours.push_back(shard.shard);
    BATON_ASSIGN_OR_RETURN(peer.links, PlanLinks(options_.transfer.layout, peer.sources, ours));
    peer_ = std::make_shared<const PeerLinks>(std::move(peer));
  }
  return data_plane_->OpenWindows(command.session,
                                  {command.terms.window_key, command.granted, peer_});
}

void ShardServer::OnArrival(const SessionKey& session,
                            const PieceArrival& piece,
                            std::string_view transport,
                            bool /*polls_for_seal*/) {
  ShardEvent event;
  event.kind = ShardEvent::Kind::kArrival;
  event.session = session;
  event.link = piece.link;
  event.first = piece.first;
  event.pieces = piece.count;
  event.bytes = piece.bytes;
  event.checksums.assign(piece.checksums.begin(), piece.checksums.end());
  event.transport = transport;
  Send(event);
}

void ShardServer::OnMisplaced(const SessionKey& session, const Status& error) {
  ShardEvent event;
  event.kind = ShardEvent::Kind::kMisplaced;
  event.session = session;
  event.status = error;
  Send(event);
}

void ShardServer::OnWindowsClosed(const SessionKey& session, const Status& status) {
  ShardEvent event;
  event.kind = ShardEvent::Kind::kWindowsClosed;
  event.session = session;
  event.status = status;
  Send(event);
}

}  // namespace baton

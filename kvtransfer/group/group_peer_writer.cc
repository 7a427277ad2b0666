#include "kvtransfer/group/group_peer_writer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace baton {
namespace {

// Appends `text` unless `to` has it already.
void Add(std::string& to, std::string_view separator, const std::string& text) {
  if (text.empty() || to.find(text) != std::string::npos) return;
  to += fmt::format("{}{}", to.empty() ? "" : separator, text);
}

// Blocks of one index are one piece.
uint64_t PiecesIn(std::span<const PeerWriter::Block> blocks) {
  uint64_t pieces = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    pieces += i == 0 || blocks[i].index != blocks[i - 1].index ? 1 : 0;
  }
  return pieces;
}

}  // namespace

GroupPeerWriter::GroupPeerWriter(ShardCalls& calls,
                                 uint64_t number,
                                 std::unique_ptr<PeerWriter> local,
                                 std::vector<KvLink> links,
                                 const std::vector<ShardEvent>& answers)
    : calls_(calls),
      number_(number),
      local_(std::move(local)),
      links_(std::move(links)),
      transport_name_(local_->transport_name()),
      not_taken_(local_->not_taken()) {
  for (const ShardEvent& answer : answers) {
    Add(transport_name_, "+", answer.transport);
    Add(not_taken_, "; ", answer.not_taken);
  }
}

GroupPeerWriter::~GroupPeerWriter() {
  calls_.Send(Command(ShardCommand::Kind::kDropWriter));
  calls_.Forget(number_);
}

ShardCommand GroupPeerWriter::Command(ShardCommand::Kind kind) const {
  ShardCommand command;
  command.kind = kind;
  command.writer = number_;
  return command;
}

void GroupPeerWriter::Send(ShardCommand::Kind kind, const SessionKey& session) {
  ShardCommand command = Command(kind);
  command.session = session;
  calls_.Send(command);
}

Status GroupPeerWriter::Connect() {
  calls_.Send(Command(ShardCommand::Kind::kConnect));
  return local_->Connect();
}

void GroupPeerWriter::Enqueue(const SessionKey& session,
                              const Terms& terms,
                              std::span<const Block> blocks) {
  local_->Enqueue(session, terms, blocks);
  const auto links = std::ranges::count_if(links_, [&](const KvLink& link) {
    return link.cache_group == terms.cache_group && link.layer_group >= terms.first_group &&
           link.layer_group < terms.end_group;
  });
  if (links == 0) return;
  outstanding_ += static_cast<uint64_t>(links) * PiecesIn(blocks);
  ShardCommand command = Command(ShardCommand::Kind::kEnqueue);
  command.session = session;
  command.terms = terms;
  command.blocks.assign(blocks.begin(), blocks.end());
  calls_.Send(command);
}

void GroupPeerWriter::Start(const SessionKey& session) {
  local_->Start(session);
  Send(ShardCommand::Kind::kStart, session);
}

bool GroupPeerWriter::Poll(Time now, WriteListener& listener) {
  const bool more = local_->Poll(now, listener);
  for (const ShardEvent& event : calls_.TakeWriterEvents(number_)) {
    if (event.kind == ShardEvent::Kind::kPosted) {
      listener.OnPosted(event.session, event.link, event.first, event.checksums, event.bytes);
      continue;
    }
    outstanding_ -= std::min<uint64_t>(outstanding_, event.pieces);
    ++ops_;
    if (event.kind == ShardEvent::Kind::kWritten) {
      listener.OnWritten(event.session, event.pieces, event.bytes);
    } else {
      listener.OnWriteLost(event.session, event.pieces, event.status);
    }
  }
  return more;
}

void GroupPeerWriter::Stop(const SessionKey& session, WriteListener& listener) {
  local_->Stop(session, listener);
  Send(ShardCommand::Kind::kStop, session);
}

void GroupPeerWriter::Release(uint64_t window_key) {
  local_->Release(window_key);
  ShardCommand command = Command(ShardCommand::Kind::kRelease);
  command.terms.window_key = window_key;
  calls_.Send(command);
}

void GroupPeerWriter::Fence(const SessionKey& session) {
  local_->Fence(session);
  Send(ShardCommand::Kind::kFence, session);
}

void GroupPeerWriter::FenceAll() {
  local_->FenceAll();
  calls_.Send(Command(ShardCommand::Kind::kFenceAll));
}

}  // namespace baton

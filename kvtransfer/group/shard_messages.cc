#include "kvtransfer/group/shard_messages.h"

#include "kvtransfer/messages/field_io.h"

namespace baton {
namespace {

constexpr size_t kMaxHelloBytes = size_t{1} << 22;

template <class Io, class Kind>
void KindField(Io& io, Kind& kind, Kind last) {
  auto value = static_cast<uint8_t>(kind);
  io.Integer("kind", value);
  if constexpr (Io::kReads) {
    if (value > static_cast<uint8_t>(last)) {
      return io.Refuse("kind", fmt::format("is {}, which is none", value));
    }
    kind = static_cast<Kind>(value);
  }
}

// Unlike Outcome, also OK.
template <class Io>
void Result(Io& io, Status& status) {
  bool failed = !status.ok();
  Flag(io, "failed", failed);
  if (failed) Outcome(io, "status", status);
}

template <class Io>
void Terms(Io& io, PeerWriter::Terms& terms) {
  io.Integer("window_key", terms.window_key);
  Flag(io, "checksums", terms.checksums);
  io.Integer("cache_group", terms.cache_group);
  io.Integer("first_group", terms.first_group);
  io.Integer("end_group", terms.end_group);
  Flag(io, "held", terms.held);
  Flag(io, "urgent", terms.urgent);
  io.Integer("bytes_per_second", terms.bytes_per_second);
}

template <class Io>
void Fields(Io& io, ShardCommand& m) {
  KindField(io, m.kind, ShardCommand::Kind::kSetReceiveRate);
  io.Integer("call", m.call);
  io.Integer("writer", m.writer);
  Id(io, "session", m.session.first);
  Id(io, "epoch", m.session.second);
  Terms(io, m.terms);
  Items(io, "blocks", m.blocks, kMaxPromptBlocks, 12, [&](PeerWriter::Block& block) {
    io.Integer("block.index", block.index);
    Id(io, "block.source", block.pair.source);
    Id(io, "block.destination", block.pair.destination);
  });
  io.Text("hello", m.hello, kMaxHelloBytes);
  BlocksByGroup(io, "granted", m.granted);
  Id(io, "boot", m.boot);
  Items(io, "sources", m.sources, kMaxShards, 16, [&](KvShard& shard) { Shard(io, shard); });
}

template <class Io>
void Fields(Io& io, ShardEvent& m) {
  KindField(io, m.kind, ShardEvent::Kind::kWindowsClosed);
  io.Integer("call", m.call);
  io.Integer("writer", m.writer);
  Id(io, "session", m.session.first);
  Id(io, "epoch", m.session.second);
  io.Integer("link", m.link);
  io.Integer("first", m.first);
  io.Integer("pieces", m.pieces);
  io.Integer("bytes", m.bytes);
  io.Words("checksums", m.checksums, kMaxPromptBlocks);
  Result(io, m.status);
  io.Text("transport", m.transport, kMaxNameBytes);
  io.Text("not_taken", m.not_taken, kMaxStatusBytes);
  Endpoints(io, m.endpoints);
}

template <class Message>
std::string EncodeFields(const Message& message) {
  Message copy = message;  // the field functions also decode, so they take references
  FieldWriter writer;
  Fields(writer, copy);
  return writer.Take();
}

template <class Message>
StatusOr<Message> DecodeFields(std::string_view bytes) {
  FieldReader reader(bytes);
  Message message;
  Fields(reader, message);
  if (reader.error().empty() && !reader.at_end()) reader.Refuse("end", "is followed by more bytes");
  if (reader.error().empty()) return message;
  return InvalidArgument(
      "message of {} bytes between the ranks of a worker: {}", bytes.size(), reader.error());
}

}  // namespace

std::string Encode(const ShardCommand& command) {
  return EncodeFields(command);
}

std::string Encode(const ShardEvent& event) {
  return EncodeFields(event);
}

StatusOr<ShardCommand> DecodeShardCommand(std::string_view bytes) {
  return DecodeFields<ShardCommand>(bytes);
}

StatusOr<ShardEvent> DecodeShardEvent(std::string_view bytes) {
  return DecodeFields<ShardEvent>(bytes);
}

}  // namespace baton

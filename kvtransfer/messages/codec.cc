#include "kvtransfer/messages/codec.h"

#include <utility>

#include "kvtransfer/messages/field_io.h"

namespace baton {
namespace {

template <class Io>
void Hash(Io& io, std::string_view field, Hash128& hash) {
  io.Integer(field, hash.high);
  io.Integer(field, hash.low);
}

// A duration in microseconds, 0 to about 49 days.
template <class Io>
void Span(Io& io, std::string_view field, Duration& span) {
  constexpr uint64_t kLongest = uint64_t{1} << 42;
  auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(span).count());
  io.Integer(field, micros);
  if constexpr (Io::kReads) {
    if (micros > kLongest) io.Refuse(field, "is over 49 days");
    span = std::chrono::microseconds(micros > kLongest ? 0 : micros);
  }
}

template <class Io>
void Plane(Io& io, KvPlane& plane) {
  io.Text("layout.plane.name", plane.name, kMaxNameBytes);
  io.Integer("layout.plane.heads", plane.heads);
  io.Integer("layout.plane.dim", plane.dim);
  auto dtype = static_cast<uint8_t>(plane.dtype);
  io.Integer("layout.plane.dtype", dtype);
  bool dim_major = plane.order == KvOrder::kDimMajor;
  Flag(io, "layout.plane.dim_major", dim_major);
  Flag(io, "layout.plane.sharded", plane.sharded);
  if constexpr (Io::kReads) {
    if (dtype > static_cast<uint8_t>(DType::kBF16) && dtype != static_cast<uint8_t>(DType::kFp8)) {
      io.Refuse("layout.plane.dtype",
                fmt::format("is {}; it must be f32, f16, bf16 or fp8", dtype));
      return;
    }
    plane.dtype = static_cast<DType>(dtype);
    plane.order = dim_major ? KvOrder::kDimMajor : KvOrder::kTokenMajor;
  }
}

template <class Io>
void Layout(Io& io, KvLayout& layout) {
  const auto layer = [&io](int32_t& value) { io.Integer("layout.layer", value); };
  io.Integer("layout.block_tokens", layout.block_tokens);
  Items(io, "layout.groups", layout.groups, kMaxCacheGroups, 17, [&](KvCacheGroup& group) {
    Items(io, "layout.group.layers", group.layers, kMaxLayers, sizeof(int32_t), layer);
    io.Integer("layout.group.sliding_window", group.sliding_window);
    io.Integer("layout.group.attention_chunk", group.attention_chunk);
    Flag(io, "layout.group.state", group.state);
    Items(io, "layout.group.planes", group.planes, kMaxPlanes, 15, [&](KvPlane& plane) {
      Plane(io, plane);
    });
  });
  Items(io, "layout.layer_group_ends", layout.layer_group_ends, kMaxLayers, sizeof(int32_t), layer);
  if constexpr (Io::kReads) {
    if (const Status valid = layout.Validate(); !valid.ok()) io.Refuse("layout", Message(valid));
  }
}

template <class Io>
void Fields(Io& io, Hello& m) {
  io.Integer("version", m.version);
  Id(io, "worker", m.worker);
  if constexpr (Io::kReads) {
    // The HELLO of another version may differ from here on; its version number is enough to refuse
    // it.
    if (m.version != kKvProtocolVersion) return io.SkipRest();
  }
  Id(io, "boot", m.boot);
  Hash(io, "model_fingerprint", m.model_fingerprint);
  Hash(io, "weights", m.weights);
  Layout(io, m.layout);
  Items(io, "shards", m.shards, kMaxShards, 24, [&](KvShardInfo& info) {
    Shard(io, info.shard);
    io.Integer("shard.block_count", info.block_count);
    if constexpr (Io::kReads) {
      const Status valid = ValidateShard(m.layout, info.shard);
      if (!valid.ok()) io.Refuse("shard", Message(valid));
    }
    Endpoints(io, info.endpoints);
  });
}

template <class Io>
void Fields(Io& io, Offer& m) {
  io.Integer("total_tokens", m.total_tokens);
  if constexpr (Io::kReads) {
    if (m.total_tokens == 0 || m.total_tokens > kMaxPromptTokens) {
      io.Refuse("total_tokens",
                fmt::format("is {}; it must be 1 to {}", m.total_tokens, kMaxPromptTokens));
    }
  }
  Span(io, "timeout", m.timeout);
}

template <class Io>
void Fields(Io& io, Grant& m) {
  io.Integer("window_key", m.window_key);
  io.Integer("cached_blocks", m.cached_blocks);
  Flag(io, "checksums", m.checksums);
  io.Integer("links", m.links);
  io.Integer("bytes_per_second", m.bytes_per_second);
  BlocksByGroup(io, "blocks", m.blocks);
}

template <class Io>
void Fields(Io& io, Refuse& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, Seal& m) {
  io.Integer("blocks", m.blocks);
  io.Integer("bytes", m.bytes);
  io.Words("checksums", m.checksums, size_t{kMaxPromptBlocks} * 4);
  io.Text("payload", m.payload, kMaxPayloadBytes);
}

template <class Io>
void Fields(Io& io, Resend& m) {
  io.Integer("attempt", m.attempt);
  Items(io, "blocks", m.blocks, kMaxPromptBlocks, 4, [&](uint32_t& block) {
    io.Integer("blocks", block);
  });
}

template <class Io>
void Fields(Io& io, Ack& m) {
  io.Integer("bytes", m.bytes);
}

template <class Io>
void Fields(Io& io, Renew& m) {
  Flag(io, "granted", m.granted);
  io.Integer("pieces", m.pieces);
}

template <class Io>
void Fields(Io& io, Fail& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, Abort& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, DrainAck& m) {
  Flag(io, "found", m.found);
}

template <class Io>
void Fields(Io& io, Bye& m) {
  io.Text("reason", m.reason, kMaxStatusBytes);
}

// Default-constructs the alternative with that index.
template <size_t I = 0>
ControlMessage MakeMessage(size_t index) {
  if constexpr (I + 1 < std::variant_size_v<ControlMessage>) {
    if (index != I) return MakeMessage<I + 1>(index);
  }
  return ControlMessage(std::in_place_index<I>);
}

}  // namespace

std::string EncodeEnvelope(const Envelope& envelope) {
  Envelope copy = envelope;  // the field functions also decode, so they take references
  FieldWriter writer;
  auto kind = static_cast<uint8_t>(copy.message.index());
  writer.Integer("kind", kind);
  Id(writer, "session", copy.session);
  Id(writer, "epoch", copy.epoch);
  std::visit([&](auto& message) { Fields(writer, message); }, copy.message);
  return writer.Take();
}

StatusOr<Envelope> DecodeEnvelope(std::string_view bytes) {
  FieldReader reader(bytes);
  Envelope envelope;
  uint8_t kind = 0;
  reader.Integer("kind", kind);
  if (kind >= std::variant_size_v<ControlMessage>) {
    return InvalidArgument("KV control message: kind is {}; the highest known is {}",
                           kind,
                           std::variant_size_v<ControlMessage> - 1);
  }
  Id(reader, "session", envelope.session);
  Id(reader, "epoch", envelope.epoch);
  envelope.message = MakeMessage(kind);
  std::visit([&](auto& message) { Fields(reader, message); }, envelope.message);
  if (reader.error().empty() && !reader.at_end()) reader.Refuse("end", "is followed by more bytes");
  if (!reader.error().empty()) {
    return InvalidArgument("KV control message {} of {} bytes: {}",
                           Name(envelope.message),
                           bytes.size(),
                           reader.error());
  }
  return envelope;
}

}  // namespace baton

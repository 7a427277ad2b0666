#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/messages/messages.h"

// What the data plane of a worker's leading rank and the ranks on other hosts tell each other.
namespace baton {

// Leading rank → rank: a call of DataPlane or PeerWriter. Each kind uses the fields that it names.
struct ShardCommand {
  enum class Kind : uint8_t {
    kOpen,            // call, hello (of this worker)
    kNewWriter,       // call, writer, hello (of the peer)
    kDropWriter,      // writer
    kConnect,         // writer
    kEnqueue,         // writer, session, terms, blocks
    kStart,           // writer, session
    kStop,            // writer, session
    kRelease,         // writer, terms.window_key
    kFence,           // writer, session
    kFenceAll,        // writer
    kOpenWindows,     // call, session, terms.window_key, granted, boot, sources
    kCloseWindows,    // session
    kSetReceiveRate,  // terms.bytes_per_second
  };
  Kind kind = Kind::kOpen;
  uint64_t call = 0;  // the number of the kAnswer
  uint64_t writer = 0;
  SessionKey session{SessionId(0), Epoch(0)};
  PeerWriter::Terms terms = {};
  std::vector<PeerWriter::Block> blocks = {};
  std::string hello = {};                          // EncodeEnvelope
  std::vector<std::vector<BlockId>> granted = {};  // Grant::blocks
  BootId boot = {};                                // as PeerLinks
  std::vector<KvShard> sources = {};               // as PeerLinks
};

// Rank → leading rank: an answer, or a call of WriteListener or WindowListener.
struct ShardEvent {
  enum class Kind : uint8_t {
    kAnswer,         // call, status; kOpen: endpoints; kNewWriter: transport, not_taken
    kPosted,         // writer, session, link, first, checksums, bytes
    kWritten,        // writer, session, pieces, bytes
    kWriteLost,      // writer, session, pieces, status
    kArrival,        // session, link, first, pieces, bytes, checksums, transport
    kMisplaced,      // session, status
    kWindowsClosed,  // session, status
  };
  Kind kind = Kind::kAnswer;
  uint64_t call = 0;
  uint64_t writer = 0;
  SessionKey session{SessionId(0), Epoch(0)};
  uint32_t link = 0;
  uint32_t first = 0;
  uint32_t pieces = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> checksums = {};
  Status status = {};
  std::string transport = {};
  std::string not_taken = {};
  std::vector<KvEndpoint> endpoints = {};
};

std::string Encode(const ShardCommand& command);
std::string Encode(const ShardEvent& event);
// InvalidArgument that names the field.
StatusOr<ShardCommand> DecodeShardCommand(std::string_view bytes);
StatusOr<ShardEvent> DecodeShardEvent(std::string_view bytes);

}  // namespace baton

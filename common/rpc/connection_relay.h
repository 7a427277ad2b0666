#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/rpc/client_socket.h"
#include "common/rpc/frame_gate.h"
#include "common/rpc/remote_client.h"
#include "common/rpc/stranger_load.h"

namespace baton {

// Two ends of a connection within this process.
struct LocalPair {
  // Invalid with errno when the process has no descriptors or memory.
  static LocalPair Make();
  bool valid() const { return relay.valid() && grpc.valid(); }

  UniqueFd relay;
  UniqueFd grpc;     // sees `name` as the name of its peer
  std::string name;  // unique on this machine, abstract (unix(7)), without its leading zero byte
};

// One connection of a gRPC port: passes bytes between the client and gRPC, which has a connection
// of its own within the process. What the client sends passes a FrameGate first. gRPC gets its end
// when the client has begun to speak HTTP/2. Keeps at most one read of bytes in each direction, and
// then does not read on. Bytes that only update windows may wait for the next ones (WindowUpdates).
// Used by one thread; never blocks.
class ConnectionRelay final {
 public:
  enum class Side { kClient, kGrpc };
  // What the connections of a port share. The referents outlive the relays.
  struct Port {
    StrangerLoad& strangers;
    std::span<char> buffer;  // for one read at a time
    std::function<void(UniqueFd grpc)> take;
  };

  // `address`: the client's, as gRPC writes it. A client that has not begun to speak HTTP/2 at
  // `deadline` is disconnected.
  ConnectionRelay(std::unique_ptr<ClientSocket> client,
                  LocalPair pair,
                  std::string address,
                  Port& port,
                  Time deadline);
  ~ConnectionRelay();
  ConnectionRelay(const ConnectionRelay&) = delete;

  // Handles events of epoll at one of the two descriptors; 0: goes on where it stopped.
  void OnEvents(Side side, uint32_t events, Time now);
  // To be called when deadline() has passed.
  void OnDeadline(Time now);
  // Ends the connection at once.
  void Drop() { phase_ = Phase::kOver; }
  // gRPC's server has stopped: sends what waits for the client, for a short time.
  void Finish(Time now);

  // The connection has ended: to be destroyed.
  bool over() const { return phase_ == Phase::kOver; }
  // More can be done at once, without an event.
  bool has_more() const { return has_more_ && !over(); }
  Time deadline() const { return std::min(deadline_, held_until_); }
  // The events to wait for; absent: the descriptor must not be watched.
  std::optional<uint32_t> interest(Side side) const;
  int fd(Side side) const { return side == Side::kClient ? client_->fd() : pair_.relay.get(); }
  const std::string& address() const { return address_; }
  // Why the client was refused: what it flooded the port with, or why TLS failed; else empty.
  std::string_view flood() const { return gate_.has_value() ? gate_->failure() : ""; }
  const std::string& tls_refusal() const { return client_->refusal(); }

 private:
  enum class Phase { kHandshake, kOpen, kLeaving, kOver };

  void Handshake(Time now);
  void Open();
  // Gives gRPC its end.
  void Start();
  void PumpUp(Time now);
  void PumpDown(Time now);
  // Sends what waits. False while something still waits, or when the connection has ended.
  bool FlushUp();
  bool FlushDown();
  void PassUp(std::string_view bytes);
  void PassDown(std::string_view bytes);
  // Keeps bytes that may wait for the next ones of their direction.
  void Hold(std::string& held, std::string_view bytes, Time now);
  // Sends what is held.
  void ReleaseUp(std::string_view next = {});
  void ReleaseDown(std::string_view next = {});
  // Ends the connection because of the client's flood.
  void Refuse(Time now);
  // gRPC has no part in the connection any more. The client may still read.
  void Leave(Time now);
  void SendRest();
  void DiscardInput();

  const std::unique_ptr<ClientSocket> client_;
  LocalPair pair_;
  const std::string address_;
  Port& port_;
  Time deadline_;
  Phase phase_ = Phase::kHandshake;
  std::shared_ptr<RemoteClient> identity_;
  std::optional<FrameGate> gate_;
  bool started_ = false;       // gRPC has its end
  bool client_ended_ = false;  // no bytes of the client follow
  bool grpc_ended_ = false;    // gRPC has closed its end, but bytes of it may still be unread
  bool writing_ended_ = false;
  bool has_more_ = false;
  size_t discarded_ = 0;
  std::string up_;    // waits for gRPC
  std::string down_;  // waits for the client
  // Updates of windows that are sent with the next bytes, or by OnDeadline.
  std::string held_up_;
  std::string held_down_;
  Time held_until_ = kNever;
};

}  // namespace baton

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/unique_fd.h"
#include "kvtransfer/wire/peer_connection.h"

namespace baton {

// Accepts peers on one listening socket and serves their connections, each a bounded amount at a
// time. Garbage, silence in mid-frame and too many connections end in a closed connection and a
// line in the log. Owned by a transport; its thread only.
class FrameServer final {
 public:
  struct Options {
    uint32_t max_connections = 0;
    Duration stall_timeout{};
    std::function<void(std::string_view)> log;
    // Makes the connection of an accepted socket, or says why it is refused.
    std::function<StatusOr<std::unique_ptr<PeerConnection>>(UniqueFd socket, Time now)> accept;
  };

  // `epoll_fd` is the transport's.
  FrameServer(UniqueFd listener, int epoll_fd, Options options);
  ~FrameServer();

  // Serves what epoll says is ready. True when work is left over.
  bool Poll(Time now);
  void OnWindowClosed(uint64_t key);
  // The connection of that socket got something to say, or to read, outside of its Step.
  void Refresh(int fd);

  int listener() const { return listener_.get(); }
  size_t connection_count() const { return connections_.size(); }

 private:
  struct Served {
    std::unique_ptr<PeerConnection> connection;
    bool watches_write = false;
  };

  void AcceptAll(Time now);
  void Serve(int fd, Time now);
  void CloseStalled(Time now);
  void Close(int fd, const Status& reason);
  void Watch(int fd, bool write, int operation);
  void WatchWrites(Served& served);
  void Log(std::string_view line) const;

  const UniqueFd listener_;
  const int epoll_fd_;
  const Options options_;
  std::unordered_map<int, Served> connections_;
  std::vector<int> unfinished_;  // had more than their quantum
  Time next_check_{};
  Time accept_again_{};  // after running out of descriptors
  uint64_t turned_away_ = 0;
};

}  // namespace baton

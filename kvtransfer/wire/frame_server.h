#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/unique_fd.h"
#include "kvtransfer/wire/pacer.h"
#include "kvtransfer/wire/peer_connection.h"

namespace baton {

// Accepts peers on one listening socket and serves their connections, a bounded amount of work at a
// time. A peer that sends garbage, stalls inside a frame, or has not sent its proof and preface
// within the stall timeout is disconnected, and that is logged. When too many connections are open,
// the oldest one without a preface gives way to a new one. Connections that cannot be accepted (too
// many are open, `accept` refuses them, file descriptors ran out) are logged once a minute for each
// of these reasons. Owned by a transport; its thread only.
class FrameServer final {
 public:
  struct Options {
    uint32_t max_connections = 0;
    Duration stall_timeout{};
    std::function<void(std::string_view)> log;
    // Bounds the payload bytes that the connections move together. 0: no bound.
    uint64_t bytes_per_second = 0;
    // Creates the connection of an accepted socket. An error refuses the socket.
    std::function<StatusOr<std::unique_ptr<PeerConnection>>(UniqueFd socket, Time now)> accept;
  };

  // `epoll_fd` is the transport's epoll instance.
  FrameServer(UniqueFd listener, int epoll_fd, Options options);
  ~FrameServer();

  // Serves paced connections that may move bytes again, and then each connection with work once:
  // those whose sockets epoll reports, those whose payloads are landing and those with work left
  // over. True if work is left over.
  bool Poll(Time now);
  void OnWindowOpened(const WriteWindow& window);
  void OnWindowClosed(uint64_t key);
  // Replaces Options::bytes_per_second. Takes effect in the next Poll.
  void SetRate(uint64_t bytes_per_second) { pacer_.SetRate(bytes_per_second); }
  // To be called when the connection of that socket has new output, or may read again, outside of
  // its Step.
  void Refresh(int fd);

  int listener() const { return listener_.get(); }
  size_t connection_count() const { return connections_.size(); }

 private:
  struct Served {
    std::unique_ptr<PeerConnection> connection;
    bool watches_write = false;
    bool is_paced = false;  // it is not read until the pacer allows it
    Time accepted{};
  };

  // A problem that can occur many times a second.
  struct Repeated {
    uint64_t count = 0;
    Time next_line{};
  };

  // The sockets to serve. Accepts the peers that wait.
  std::set<int> TakeReady(Time now);
  void AcceptAll(Time now);
  // Closes the oldest connection without a preface. False when there is none.
  bool CloseOldestStranger(Time now);
  void Serve(int fd, Time now);
  // Serves the paced connections, in turn, as soon as bytes may move again.
  void ServePaced(Time now);
  void SetTimer(Time now) const;
  void CloseStalled(Time now);
  void Close(int fd, const Status& reason);
  void Watch(int fd, bool read, bool write, int operation);
  void WatchWrites(Served& served);
  void Log(std::string_view line) const;
  // Counts the problem, and logs `line` with the count unless it was logged in the last minute.
  void LogRepeated(Repeated& problem, Time now, std::string_view line) const;

  const UniqueFd listener_;
  const int epoll_fd_;
  const Options options_;
  std::unordered_map<int, Served> connections_;
  std::set<int> unfinished_;  // connections with work beyond their quantum
  Pacer pacer_;
  std::deque<int> paced_;  // in the order in which they were stopped
  const UniqueFd timer_;   // readable when the pacer allows bytes again
  Time next_check_{};
  Time accept_again_{};  // set after file descriptors ran out
  Repeated failed_accepts_;
  Repeated turned_away_;
  Repeated gave_way_;
  Repeated refused_;
};

}  // namespace baton

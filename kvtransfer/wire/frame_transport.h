#pragma once

#include <memory>
#include <string>

#include "common/base/unique_fd.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/options.h"
#include "kvtransfer/wire/frame_channel.h"
#include "kvtransfer/wire/frame_server.h"

namespace baton {

// The common base of the transports: regions, windows, one server, one epoll instance.
class FrameTransport : public Transport {
 public:
  TransportCaps caps() const override;
  int wait_fd() const override { return epoll_.get(); }
  Status OpenWindow(WriteWindow window) override { return windows_.Open(std::move(window)); }
  void CloseWindow(uint64_t window_key) override;
  void SetReceiveRate(uint64_t bytes_per_second) override;
  size_t Poll(Time now, std::span<Arrival> arrivals) override;

  // The number of peers connected to this endpoint.
  size_t connection_count() const { return server_ ? server_->connection_count() : 0; }

 protected:
  // `epoll` and `work_left` come from MakeEpoll and MakeEventFd (epoll.h).
  FrameTransport(const TransportOptions& options,
                 std::function<void(std::string_view)> log,
                 UniqueFd epoll,
                 UniqueFd work_left);
  void Serve(UniqueFd listener, decltype(FrameServer::Options::accept) accept);
  // Closes every connection. For subclasses that own objects which their connections use.
  void StopServing() { server_.reset(); }
  // Null before Serve.
  FrameServer* server() { return server_.get(); }
  // Does work that does not arrive on a socket. True if work is left over.
  virtual bool ServeMore(Time) { return false; }
  // Keeps wait_fd() readable while work is left.
  void SignalWork(bool left);
  StatusOr<WindowTable::Memory> MemoryOf(const Region& region) const;

  const TransportOptions options_;
  const std::function<void(std::string_view)> log_;
  const UniqueFd epoll_;
  WindowTable windows_;

 private:
  const UniqueFd work_left_;
  bool signalled_ = false;
  std::unique_ptr<FrameServer> server_;
};

}  // namespace baton

#include "kvtransfer/wire/frame_transport.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace baton {

FrameTransport::FrameTransport(const TransportOptions& options,
                               std::function<void(std::string_view)> log,
                               UniqueFd epoll,
                               UniqueFd work_left)
    : options_(options),
      log_(std::move(log)),
      epoll_(std::move(epoll)),
      work_left_(std::move(work_left)) {
  const Status watched = WatchFd(epoll_.get(), work_left_.get());
  BATON_CHECK(watched.ok(), "{}", Message(watched));
}

TransportCaps FrameTransport::caps() const {
  TransportCaps caps;
  caps.max_op_bytes = kMaxOpBytes;
  caps.max_op_runs = kMaxOpRuns;
  caps.receiver_paces = true;
  return caps;
}

void FrameTransport::Serve(UniqueFd listener, decltype(FrameServer::Options::accept) accept) {
  FrameServer::Options options;
  options.max_connections = options_.max_connections;
  options.stall_timeout = options_.stall_timeout;
  options.log = log_;
  if (caps().receiver_paces) options.bytes_per_second = options_.receive_bytes_per_second;
  options.accept = std::move(accept);
  server_ = std::make_unique<FrameServer>(std::move(listener), epoll_.get(), std::move(options));
}

StatusOr<WindowTable::Memory> FrameTransport::MemoryOf(const Region& region) const {
  const WindowTable::Memory* memory = windows_.Find(region.id());
  if (memory == nullptr) return InvalidArgument("region {} is not of this transport", region.id());
  return *memory;
}

void FrameTransport::CloseWindow(uint64_t window_key) {
  if (!windows_.Close(window_key)) return;
  if (server_) server_->OnWindowClosed(window_key);
  SignalWork(true);
}

void FrameTransport::SetReceiveRate(uint64_t bytes_per_second) {
  if (server_ && caps().receiver_paces) server_->SetRate(bytes_per_second);
}

size_t FrameTransport::Poll(Time now, std::span<Arrival> arrivals) {
  bool left = server_ && server_->Poll(now);
  left = ServeMore(now) || left;
  const size_t count = windows_.TakeArrivals(arrivals);
  SignalWork(left || windows_.arrivals() > 0);
  return count;
}

void FrameTransport::SignalWork(bool left) {
  if (left == signalled_) return;
  signalled_ = left;
  uint64_t value = 1;
  const ssize_t done = left ? ::write(work_left_.get(), &value, sizeof(value))
                            : ::read(work_left_.get(), &value, sizeof(value));
  BATON_CHECK(done == sizeof(value), "eventfd: {}", std::strerror(errno));
}

}  // namespace baton

#include "kvtransfer/one_sided/transport.h"

#include <poll.h>

#include <array>
#include <utility>

namespace baton {
namespace {

constexpr int kPollMs = 10;

}  // namespace

OneSidedTransport::~OneSidedTransport() {
  EndPeers();
}

void OneSidedTransport::EndPeers() {
  if (!receiver_) return;
  const SteadyClock clock;
  const Time limit = clock.Now() + options_.fence_timeout;
  std::array<Arrival, 16> arrivals;
  while (receiver_->is_closing() && clock.Now() < limit) {
    pollfd waiting{wait_fd(), POLLIN, 0};
    (void)::poll(&waiting, 1, kPollMs);
    Poll(clock.Now(), arrivals);
  }
  if (receiver_->is_closing() && log_) {
    log_("a peer may still write into this process's KV memory, which is being freed");
  }
  StopServing();
  receiver_.reset();
}

TransportCaps OneSidedTransport::caps() const {
  TransportCaps caps = FrameTransport::caps();
  caps.max_op_runs = kMaxSidebandRecords;
  caps.receiver_paces = false;
  caps.max_note_bytes = kMaxSidebandNoteBytes;
  return caps;
}

void OneSidedTransport::ServePeers(UniqueFd listener,
                                   std::unique_ptr<DmaQueue> checksums,
                                   Accept accept) {
  OneSidedReceiver::Options options;
  options.epoll_fd = epoll_.get();
  options.fence_timeout = options_.fence_timeout;
  options.busy_polls = caps().busy_polls;
  options.log = log_;
  receiver_ =
      std::make_unique<OneSidedReceiver>(windows_, std::move(checksums), std::move(options));
  Serve(std::move(listener),
        [this, accept = std::move(accept)](UniqueFd socket,
                                           Time now) -> StatusOr<std::unique_ptr<PeerConnection>> {
          BATON_ASSIGN_OR_RETURN(AcceptedPeer peer, accept(std::move(socket)));
          return receiver_->Add(std::move(peer.socket), std::move(peer.access), now);
        });
}

Status OneSidedTransport::OpenWindow(WriteWindow window) {
  const uint64_t key = window.key;
  BATON_RETURN_IF_ERROR(FrameTransport::OpenWindow(std::move(window)));
  if (server() != nullptr) server()->OnWindowOpened(*windows_.FindWindow(key));
  return OkStatus();
}

void OneSidedTransport::CloseWindow(uint64_t window_key) {
  if (!receiver_) {
    FrameTransport::CloseWindow(window_key);
    return;
  }
  if (!receiver_->CloseWindow(window_key)) return;
  server()->OnWindowClosed(window_key);
  SignalWork(true);
}

bool OneSidedTransport::ServeMore(Time now) {
  return receiver_ && receiver_->Poll(now, *server());
}

}  // namespace baton

#include "kvtransfer/tcp/tcp_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvtransfer/tcp/tcp_socket.h"
#include "kvtransfer/wire/connection.h"

namespace baton {
namespace {

constexpr std::string_view kDescriptorVersion = "1|";
constexpr std::string_view kAuthenticatedSuffix = "|authenticated";

// The connection of one peer. Receives payloads from the socket.
class TcpConnection final : public Connection {
 public:
  TcpConnection(Options options, WindowTable& windows, Time now)
      : Connection(std::move(options), windows, now) {}

 protected:
  Status OnPreface(std::vector<UniqueFd>) override { return OkStatus(); }
  Status BeginPayload(const WriteHeader&, std::span<const WriteRun>) override { return OkStatus(); }
  StatusOr<size_t> MovePayload(std::span<const iovec> to,
                               size_t limit,
                               GranuleHasher* /*hasher*/) override {
    if (!to.empty()) return Receive(to);
    if (scratch_.empty()) scratch_.resize(size_t{64} << 10);
    const iovec away{scratch_.data(), std::min(limit, scratch_.size())};
    return Receive({&away, 1});
  }
  bool FinishPayload(const WriteHeader&) override { return true; }

 private:
  std::vector<char> scratch_;  // receives discarded payload
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> TcpTransport::Create(
    const TransportOptions& options, Dma* dma, std::function<void(std::string_view)> log) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<Transport>(
      new TcpTransport(options, dma, std::move(log), std::move(epoll), std::move(work_left)));
}

TransportCaps TcpTransport::caps() const {
  TransportCaps caps = FrameTransport::caps();
  if (dma_ != nullptr) caps.max_op_bytes = StagingBuffers::kBufferBytes;
  return caps;
}

StatusOr<std::unique_ptr<Region>> TcpTransport::Register(const Buffer& buffer) {
  if (buffer.kind() != MemoryKind::kHost && dma_ == nullptr) {
    return InvalidArgument(
        "tcp moves a GPU's memory only through the GPU's DMA interface, which is missing");
  }
  return windows_.Add(buffer);
}

StatusOr<std::string> TcpTransport::Listen() {
  BATON_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(options_.listen_address, options_));
  Serve(std::move(listener.socket),
        [this](UniqueFd accepted, Time now) { return Accept(std::move(accepted), now); });
  return std::string(kDescriptorVersion) + listener.advertised.ToString() +
         std::string(options_.authenticate_frames ? kAuthenticatedSuffix : "");
}

StatusOr<TcpTransport::Endpoint> TcpTransport::Parse(std::string_view text) const {
  if (!text.starts_with(kDescriptorVersion)) {
    return InvalidArgument(
        "tcp descriptor '{}' does not begin with {}", text.substr(0, 64), kDescriptorVersion);
  }
  text.remove_prefix(kDescriptorVersion.size());
  Endpoint endpoint;
  const bool required = text.ends_with(kAuthenticatedSuffix);
  if (required) text.remove_suffix(kAuthenticatedSuffix.size());
  BATON_ASSIGN_OR_RETURN(endpoint.address, ParseAdvertised(text));
  endpoint.authenticated = required || options_.authenticate_frames;
  if (endpoint.authenticated && options_.proofs == nullptr) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the peer requires authenticated frames (transfer.tcp_authenticate_frames); "
                      "set security.cluster_secret_file here");
  }
  return endpoint;
}

StatusOr<std::unique_ptr<PeerConnection>> TcpTransport::Accept(UniqueFd socket, Time now) {
  BATON_ASSIGN_OR_RETURN(const TcpAddress peer, TuneAccepted(socket));
  Connection::Options options{std::move(socket), peer.ToString()};
  options.dma = dma_;
  options.epoll_fd = epoll_.get();
  options.proofs = options_.proofs;
  options.requires_tags = options_.authenticate_frames;
  return std::make_unique<TcpConnection>(std::move(options), windows_, now);
}

Status TcpTransport::Reaches(std::string_view descriptor) const {
  return Parse(descriptor).status();
}

StatusOr<std::unique_ptr<Channel>> TcpTransport::Connect(const Region& local,
                                                         std::string_view descriptor,
                                                         uint32_t peer_region) {
  BATON_ASSIGN_OR_RETURN(const Endpoint endpoint, Parse(descriptor));
  FrameChannel::Options options;
  BATON_ASSIGN_OR_RETURN(options.source, MemoryOf(local));
  BATON_ASSIGN_OR_RETURN(options.socket, ConnectTcp(endpoint.address));
  if (options.source.buffer->kind() != MemoryKind::kHost) {
    BATON_ASSIGN_OR_RETURN(options.staging,
                           StagingBuffers::Create(*dma_, *options.source.buffer, epoll_.get()));
  }
  options.epoll_fd = epoll_.get();
  options.preface.kind = PayloadKind::kInline;
  options.preface.region = peer_region;
  options.preface.flags = endpoint.authenticated ? kAuthenticated : 0;
  options.connect_timeout = options_.connect_timeout;
  if (options_.proofs != nullptr) {
    options.proof = options_.proofs->Make(PeerSide::kDialler, kDataPurpose);
  }
  return std::make_unique<FrameChannel>(std::move(options));
}

}  // namespace baton

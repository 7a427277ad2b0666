#include "kvtransfer/receiver.h"

#include <utility>

#include "kvtransfer/handoff/receiver_impl.h"

namespace baton {

StatusOr<std::unique_ptr<KvReceiver>> KvReceiver::Create(KvTransferOptions options,
                                                         KvReceiverListener& listener) {
  BATON_RETURN_IF_ERROR(ValidateOptions(options));
  auto impl = std::make_unique<Impl>(std::move(options), listener);
  BATON_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<KvReceiver>(new KvReceiver(std::move(impl)));
}

KvReceiver::KvReceiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvReceiver::~KvReceiver() = default;

const Hello& KvReceiver::hello() const {
  return impl_->hello();
}

Status KvReceiver::AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs) {
  return impl_->AddPeer(peer, out, theirs);
}

void KvReceiver::RemovePeer(const WorkerId& peer) {
  impl_->RemovePeer(peer);
}

Status KvReceiver::OnMessage(const WorkerId& peer, Envelope envelope) {
  return impl_->OnMessage(peer, std::move(envelope));
}

void KvReceiver::Grant(SessionId session,
                       Epoch epoch,
                       uint32_t cached_blocks,
                       std::span<const BlockId> blocks,
                       std::span<const BlockId> state) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            cached_blocks,
                            copy = std::vector<BlockId>(blocks.begin(), blocks.end()),
                            state_copy = std::vector<BlockId>(state.begin(), state.end())] {
    impl->DoGrant(key, cached_blocks, copy, state_copy);
  });
}

void KvReceiver::Refuse(SessionId session, Epoch epoch, Status reason) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            reason = std::move(reason)] { impl->DoRefuse(key, reason); });
}

void KvReceiver::SetReceiveRate(uint64_t bytes_per_second) {
  impl_->loop().PostAlways(
      [impl = impl_.get(), bytes_per_second] { impl->DoSetReceiveRate(bytes_per_second); });
}

void KvReceiver::Abort(SessionId session, Epoch epoch, Status reason) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            reason = std::move(reason)] { impl->DoAbort(key, reason); });
}

void KvReceiver::Leave(const std::string& reason) {
  impl_->Leave(reason);
}

KvTransferStats KvReceiver::Stats() const {
  return impl_->Stats();
}

}  // namespace baton

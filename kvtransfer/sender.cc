#include "kvtransfer/sender.h"

#include <utility>

#include "kvtransfer/handoff/sender_impl.h"

namespace baton {

StatusOr<std::unique_ptr<KvSender>> KvSender::Create(KvTransferOptions options,
                                                     KvSenderListener& listener) {
  BATON_RETURN_IF_ERROR(ValidateOptions(options));
  auto impl = std::make_unique<Impl>(std::move(options), listener);
  BATON_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<KvSender>(new KvSender(std::move(impl)));
}

KvSender::KvSender(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvSender::~KvSender() = default;

const Hello& KvSender::hello() const {
  return impl_->hello();
}

Status KvSender::AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs) {
  return impl_->AddPeer(peer, out, theirs);
}

void KvSender::RemovePeer(const WorkerId& peer) {
  impl_->RemovePeer(peer);
}

Status KvSender::OnMessage(const WorkerId& peer, Envelope envelope) {
  return impl_->OnMessage(peer, std::move(envelope));
}

void KvSender::Offer(OfferRequest request) {
  impl_->loop().PostAlways(
      [impl = impl_.get(), request = std::move(request)] { impl->DoOffer(request); });
}

void KvSender::ChunkReady(SessionId session,
                          Epoch epoch,
                          uint32_t first_index,
                          std::span<const BlockId> blocks,
                          std::span<const BlockId> state) {
  LayersReady(session, epoch, first_index, blocks, impl_->layers(), state);
}

void KvSender::LayersReady(SessionId session,
                           Epoch epoch,
                           uint32_t first_index,
                           std::span<const BlockId> blocks,
                           int32_t layers,
                           std::span<const BlockId> state) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            first_index,
                            copy = std::vector<BlockId>(blocks.begin(), blocks.end()),
                            state_copy = std::vector<BlockId>(state.begin(), state.end()),
                            layers] { impl->DoChunk(key, first_index, copy, state_copy, layers); });
}

void KvSender::Seal(SessionId session, Epoch epoch, std::string payload, Duration patience) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            payload = std::move(payload),
                            patience] { impl->DoSeal(key, payload, patience); });
}

void KvSender::Abort(SessionId session, Epoch epoch, Status reason) {
  impl_->loop().PostAlways([impl = impl_.get(),
                            key = SessionKey(session, epoch),
                            reason = std::move(reason)] { impl->DoAbort(key, reason); });
}

KvTransferStats KvSender::Stats() const {
  return impl_->Stats();
}

}  // namespace baton

// The router of HandoffWorld.
#include <utility>

#include "tests/explorer/handoff_world.h"
#include "tests/explorer/world_constants.h"

namespace baton {
namespace {

const WorkerId kPrefillName("prefill");
const WorkerId kDecodeName("decode");

uint32_t IndexOf(const RequestKey& request) {
  return static_cast<uint32_t>(request.first.value() - 1);
}

}  // namespace

void HandoffWorld::StartAttempt(uint32_t request) {
  Client& client = clients_[request];
  if (client.ended) return;
  ++client.attempts;
  client.prefill_epoch = client.decode_epoch = Epoch(++client.epochs);
  SendDispatch(request, RequestKind::kDecode);
  SendDispatch(request, RequestKind::kPrefill);
}

void HandoffWorld::SendDispatch(uint32_t request, RequestKind kind) {
  const Client& client = clients_[request];
  const bool decode = kind == RequestKind::kDecode;
  DispatchCommand dispatch;
  dispatch.request.id = RequestId(request + 1);
  dispatch.request.epoch = decode ? client.decode_epoch : client.prefill_epoch;
  dispatch.request.kind = kind;
  dispatch.request.peer_first = decode != DecodeFirst(request);
  dispatch.request.tokens = std::vector<TokenId>(size_t{kBlocks} * kTokensPerBlock, 1);
  // The session id stays the same: only the epoch tells the attempts apart.
  dispatch.session = SessionId(request + 1);
  dispatch.peer.id = decode ? kPrefillName : kDecodeName;
  Emit({.kind = decode ? Kind::kDecodeCommand : Kind::kPrefillCommand,
        .life = decode ? decode_joined_ : prefill_joined_,
        .payload = std::make_shared<const Payload>(WorkerCommand(std::move(dispatch)))});
}

void HandoffWorld::CancelParts(uint32_t request) {
  const Client& client = clients_[request];
  if (client.attempts == 0) return;
  const RequestId id(request + 1);
  Emit({.kind = Kind::kPrefillCommand,
        .life = prefill_joined_,
        .payload = std::make_shared<const Payload>(
            WorkerCommand(CancelCommand{id, client.prefill_epoch, false}))});
  Emit({.kind = Kind::kDecodeCommand,
        .life = decode_joined_,
        .payload = std::make_shared<const Payload>(
            WorkerCommand(CancelCommand{id, client.decode_epoch, false}))});
}

void HandoffWorld::Retry(uint32_t request) {
  if (clients_[request].attempts >= kMaxAttempts) return EndRequest(request);
  CancelParts(request);
  StartAttempt(request);
}

void HandoffWorld::Redirect(uint32_t request) {
  Client& client = clients_[request];
  if (client.redirects >= kMaxRedirects) return Retry(request);
  ++client.redirects;
  ++redirects_;
  const RequestId id(request + 1);
  Emit({.kind = Kind::kDecodeCommand,
        .life = decode_joined_,
        .payload = std::make_shared<const Payload>(
            WorkerCommand(CancelCommand{id, client.decode_epoch, false}))});
  client.decode_epoch = Epoch(++client.epochs);
  SendDispatch(request, RequestKind::kDecode);
  RedirectCommand redirect{id,
                           client.prefill_epoch,
                           SessionId(request + 1),
                           client.decode_epoch,
                           {},
                           DecodeFirst(request)};
  redirect.peer.id = kDecodeName;
  Emit({.kind = Kind::kPrefillCommand,
        .life = prefill_joined_,
        .payload = std::make_shared<const Payload>(WorkerCommand(std::move(redirect)))});
}

void HandoffWorld::EndRequest(uint32_t request) {
  if (clients_[request].ended) return;
  clients_[request].ended = true;
  CancelParts(request);
}

void HandoffWorld::OnReport(const Event& event, bool prefill) {
  const uint32_t request = IndexOf(event.request);
  const Client& client = clients_[request];
  const Epoch present = prefill ? client.prefill_epoch : client.decode_epoch;
  if (client.ended || event.request.second != present) return;
  if (event.number == kRefused) return Redirect(request);
  if (event.number == kFailed) return Retry(request);
  if (prefill) return;  // the decode worker finishes the request
  ++served_;
  EndRequest(request);
}

void HandoffWorld::OnGone(bool prefill) {
  if (prefill) {
    prefill_joined_ = prefill_life_;
  } else {
    decode_joined_ = decode_life_;
  }
  for (uint32_t request = 0; request < clients_.size(); ++request) {
    if (!clients_[request].ended && clients_[request].attempts > 0) Retry(request);
  }
}

}  // namespace baton

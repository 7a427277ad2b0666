// Control messages from outside: whatever decodes must encode back, and no order of messages may
// break a session.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "kvtransfer/codec.h"
#include "kvtransfer/receiver_session.h"
#include "kvtransfer/sender_session.h"

namespace baton {
namespace {

constexpr uint32_t kBlocks = 4;

// Feeds the session what its windows and its worker would answer.
void Answer(ReceiverSession& receiver, Time now) {
  for (const ReceiverAction& action : receiver.TakeActions()) {
    if (std::holds_alternative<ReportOffer>(action)) {
      ReceiverSession::Reservation reservation;
      reservation.grant.window_key = 1;
      reservation.grant.blocks.resize(kBlocks);
      reservation.link_bytes = {100};
      (void)receiver.Grant(std::move(reservation), now);
    } else if (std::holds_alternative<CloseWindows>(action)) {
      receiver.OnWindowsClosed(OkStatus(), now);
    }
  }
}

void Answer(SenderSession& sender, Time now) {
  for (const SenderAction& action : sender.TakeActions()) {
    const auto* post = std::get_if<PostBlocks>(&action);
    if (post == nullptr) continue;
    sender.OnWriteLost(post->pieces, MakeStatus(StatusCode::kUnavailable, "lost"), now);
  }
}

// Input: messages, each after its length in two bytes.
void Run(std::string_view input) {
  Time now{std::chrono::hours(1)};
  SenderSession::Params params;
  params.total_tokens = kBlocks;
  params.block_count = kBlocks;
  params.timeout = std::chrono::seconds(10);
  const SessionTimes times;
  SenderSession sender(params, times, now);
  ReceiverSession receiver(Offer{kBlocks, {}, std::chrono::seconds(10)}, kBlocks, times, now);
  const BlockId ready[] = {BlockId(0), BlockId(1)};
  (void)sender.AddBlocks(0, ready, 1, now);
  while (input.size() >= 2) {
    const size_t size = static_cast<unsigned char>(input[0]) |
                        static_cast<size_t>(static_cast<unsigned char>(input[1])) << 8;
    input.remove_prefix(2);
    const std::string_view bytes = input.substr(0, size);
    input.remove_prefix(bytes.size());
    const StatusOr<Envelope> envelope = DecodeEnvelope(bytes);
    if (!envelope.ok()) continue;
    const StatusOr<Envelope> again = DecodeEnvelope(EncodeEnvelope(*envelope));
    BATON_CHECK(again.ok() && *again == *envelope, "a message changed on its way");
    // KvSender lets only a grant with the expected number of links through.
    const auto* grant = std::get_if<Grant>(&envelope->message);
    if (grant == nullptr || grant->contributors == 1) sender.OnMessage(envelope->message, now);
    receiver.OnMessage(envelope->message, now);
    Answer(sender, now);
    Answer(receiver, now);
    now += std::chrono::milliseconds(envelope->sequence % 1000);
    sender.OnTime(now);
    receiver.OnTime(now);
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

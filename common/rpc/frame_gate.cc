#include "common/rpc/frame_gate.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Budget {
  double burst;
  double per_second;
};
// Of a client that has proven nothing. Its first call decides whether it is one for long.
constexpr Budget kStrangerRequests = {500, 100};
constexpr Budget kStrangerResets = {200, 50};
constexpr Budget kStrangerIdleFrames = {500, 50};
constexpr Budget kStrangerSmallData = {500, 100};
// A proxy cancels what its clients cancel.
constexpr Budget kProvenResets = {5000, 2000};
constexpr Budget kProvenIdleFrames = {10000, 5000};

// What gRPC holds for an open request beside its header and data, measured with 200,000 requests.
constexpr size_t kRequestBytes = size_t{16} << 10;
constexpr size_t kDataFrameBytes = 64;    // beside the data
constexpr uint32_t kSmallDataBytes = 64;  // a frame with less data costs more than it brings
// Of frames other than DATA. Servers that do not ask for more get no more (RFC 9113, section 4.2).
constexpr uint32_t kMaxFrameBytes = 16384;
constexpr int kMaxContinuations = 6;
constexpr uint32_t kPriorityBytes = 5;  // RFC 9113, section 6.2
// A client updates its windows and measures its round trips while it reads.
constexpr uint32_t kAnswersPerDataFrame = 4;
constexpr uint32_t kMaxExpectedAnswers = 4000;

FloodBudget Make(const Budget& budget) {
  return FloodBudget(budget.burst, budget.per_second);
}

}  // namespace

struct FrameGate::ClientFrames {
  FrameGate& gate;

  bool OnFrame(const FrameHead& head) {
    gate.client_updates_.OnFrame(head);
    return gate.OnFrame(head);
  }
  bool OnPayload(const FrameHead& head, std::string_view part, bool last) {
    gate.client_updates_.OnPayload(head, part);
    const bool header = head.type == FrameHead::kHeaders || head.type == FrameHead::kContinuation;
    return !header || gate.OnHeaderPayload(head, part, last);
  }
};

struct FrameGate::ServerFrames {
  FrameGate& gate;

  bool OnFrame(const FrameHead& head) {
    gate.server_updates_.OnFrame(head);
    gate.reset_code_ = 0;
    if (head.type == FrameHead::kData) {
      gate.expected_answers_ =
          std::min(gate.expected_answers_ + kAnswersPerDataFrame, kMaxExpectedAnswers);
    }
    const bool may_end = head.type == FrameHead::kData || head.type == FrameHead::kHeaders;
    if (may_end && head.has(FrameHead::kEndStream)) gate.Release(head.stream);
    return true;
  }
  bool OnPayload(const FrameHead& head, std::string_view part, bool last) {
    gate.server_updates_.OnPayload(head, part);
    if (head.type != FrameHead::kResetStream) return true;
    for (const char byte : part) gate.reset_code_ |= static_cast<uint8_t>(byte);
    if (!last) return true;
    gate.Release(head.stream);
    // The client made the server reset the request (CVE-2025-8671).
    if (gate.reset_code_ != 0 && !gate.resets_.Take(gate.now_)) gate.Fail(kTooManyResets);
    return true;
  }
};

FrameGate::FrameGate(const RemoteClient& client, StrangerLoad& strangers, std::function<void()> end)
    : client_(client),
      strangers_(strangers),
      resets_(Make(kStrangerResets)),
      idle_frames_(Make(kStrangerIdleFrames)),
      requests_(Make(kStrangerRequests)),
      small_data_(Make(kStrangerSmallData)) {
  share_.emplace(
      strangers,
      [this] { return client_.proven(); },
      [this, end = std::move(end)] {
        Fail(kTooMuchMemory);
        end();
      });
}

size_t FrameGate::FromClient(std::string_view bytes, Time now) {
  now_ = now;
  if (!failure_.empty()) return 0;
  SettleProof();
  client_updates_.Begin(from_client_.at_border());
  const size_t size = bytes.size();
  if (preface_bytes_ < kPreface.size() && !TakePreface(bytes)) return 0;
  ClientFrames frames{*this};
  const size_t passed = size - bytes.size() + from_client_.Scan(bytes, frames);
  return failure_.empty() ? passed : 0;
}

void FrameGate::FromServer(std::string_view bytes, Time now) {
  now_ = now;
  server_updates_.Begin(from_server_.at_border());
  ServerFrames frames{*this};
  from_server_.Scan(bytes, frames);
}

bool FrameGate::Fail(std::string_view failure) {
  if (failure_.empty()) failure_ = failure;
  return false;
}

void FrameGate::SettleProof() {
  if (!is_stranger() || !client_.proven()) return;
  share_.reset();
  streams_ = {};
  resets_ = Make(kProvenResets);
  idle_frames_ = Make(kProvenIdleFrames);
}

bool FrameGate::TakePreface(std::string_view& bytes) {
  const size_t taken = std::min(bytes.size(), kPreface.size() - preface_bytes_);
  if (bytes.substr(0, taken) != kPreface.substr(preface_bytes_, taken)) return Fail(kNotHttp2);
  preface_bytes_ += taken;
  bytes.remove_prefix(taken);
  return true;
}

bool FrameGate::OnFrame(const FrameHead& head) {
  if (!greeted_ && head.type != FrameHead::kSettings) return Fail(kNotHttp2);
  greeted_ = true;
  const bool continues = head.type == FrameHead::kContinuation;
  if (continues != (header_stream_ != 0)) return Fail(kBreaksProtocol);
  if (continues && head.stream != header_stream_) return Fail(kBreaksProtocol);
  if (head.type != FrameHead::kData && head.length > kMaxFrameBytes) return Fail(kBreaksProtocol);
  switch (head.type) {
    case FrameHead::kHeaders:
      return OnHeaders(head);
    case FrameHead::kContinuation:
      return ++continuations_ <= kMaxContinuations || Fail(kHeaderTooLarge);
    case FrameHead::kData:
      return OnData(head);
    case FrameHead::kResetStream:
      return OnReset(head);
    case FrameHead::kPing:
    case FrameHead::kWindowUpdate:
      if (expected_answers_ == 0) return OnIdleFrame();
      --expected_answers_;
      return true;
    default:
      return OnIdleFrame();
  }
}

bool FrameGate::OnHeaders(const FrameHead& head) {
  // gRPC takes padding for a part of the header, so it must not see any.
  if (head.stream % 2 == 0 || head.has(FrameHead::kPadded)) return Fail(kBreaksProtocol);
  header_stream_ = head.stream;
  continuations_ = 0;
  priority_left_ = head.has(FrameHead::kHasPriority) ? kPriorityBytes : 0;
  if (head.length < priority_left_) return Fail(kBreaksProtocol);
  if (head.stream <= last_stream_) return OnIdleFrame();  // trailers, which gRPC's clients have not
  last_stream_ = head.stream;
  if (!is_stranger()) return true;
  if (!requests_.Take(now_)) return Fail(kTooManyRequests);
  streams_[head.stream] = 0;
  Hold(head.stream, kRequestBytes);
  return failure_.empty();
}

bool FrameGate::OnHeaderPayload(const FrameHead& head, std::string_view part, bool last) {
  const size_t skipped = std::min<size_t>(part.size(), priority_left_);
  priority_left_ -= static_cast<uint32_t>(skipped);
  part.remove_prefix(skipped);
  const bool ends = last && head.has(FrameHead::kEndHeaders);
  if (!headers_.Take(part, ends)) return Fail(kHeaderTooLarge);
  if (!ends) return true;
  Hold(std::exchange(header_stream_, 0), headers_.header_bytes());
  return failure_.empty();
}

bool FrameGate::OnData(const FrameHead& head) {
  if (!is_stranger()) return head.length > 0 || head.has(FrameHead::kEndStream) || OnIdleFrame();
  if (head.length < kSmallDataBytes && !head.has(FrameHead::kEndStream) &&
      !small_data_.Take(now_)) {
    return Fail(kTooManyFrames);
  }
  Hold(head.stream, head.length + kDataFrameBytes);
  return failure_.empty();
}

bool FrameGate::OnReset(const FrameHead& head) {
  Release(head.stream);
  if (!resets_.Take(now_)) return Fail(kTooManyResets);
  if (is_stranger() && !strangers_.TakeReset(now_)) return Fail(kTooManyResets);
  return true;
}

bool FrameGate::OnIdleFrame() {
  return idle_frames_.Take(now_) || Fail(kTooManyFrames);
}

void FrameGate::Hold(uint32_t stream, size_t bytes) {
  if (!is_stranger()) return;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;  // has ended: gRPC drops what comes
  found->second += bytes;
  share_->Add(bytes);
}

void FrameGate::Release(uint32_t stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  if (is_stranger()) share_->Remove(found->second);
  streams_.erase(found);
}

}  // namespace baton

#include "kvtransfer/session/sender_session.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"

namespace baton {
namespace {

// Held writes are started when the rest of the prompt's computation is expected to take this many
// times as long as sending them.
constexpr double kWaitMargin = 3;

}  // namespace

std::string_view Name(SenderState state) {
  switch (state) {
    case SenderState::kOffered:
      return "offered";
    case SenderState::kRefused:
      return "refused";
    case SenderState::kStreaming:
      return "streaming";
    case SenderState::kSealed:
      return "sealed";
    case SenderState::kDraining:
      return "draining";
    case SenderState::kFencing:
      return "fencing";
    case SenderState::kQuarantined:
      return "quarantined";
    case SenderState::kEnded:
      return "ended";
  }
  return "unknown";
}

std::optional<ControlMessage> AnswerWithoutSender(const ControlMessage& message) {
  if (std::holds_alternative<baton::Abort>(message)) return DrainAck{false};
  if (std::holds_alternative<Grant>(message) || std::holds_alternative<Resend>(message)) {
    return Fail{MakeStatus(StatusCode::kNotFound, "the sender has no such session")};
  }
  return std::nullopt;
}

SenderSession::SenderSession(const Params& params, const SessionTimes& times, Time now)
    : params_(params),
      times_(times),
      sources_(size_t{params_.owed.count} * params_.owed.block_groups()),
      ready_(params_.owed.count),
      last_heard_(now),
      last_sent_(now) {
  deadline_ = now + params_.timeout;
  SendOffer(now);
}

void SenderSession::OfferAgain(Duration timeout, Time now) {
  if (state_ != SenderState::kRefused) return;
  state_ = SenderState::kOffered;
  peer_answered_ = false;
  params_.timeout = timeout;
  deadline_ = now + timeout;
  last_heard_ = now;
  SendOffer(now);
}

Status SenderSession::CheckChunk(const Chunk& chunk) const {
  const size_t per_block = params_.owed.block_groups();
  if (chunk.blocks.size() % per_block != 0) {
    return InvalidArgument(
        "{} block ids were added; their number must be a multiple of {}, the number of cache "
        "groups of blocks of tokens",
        chunk.blocks.size(),
        per_block);
  }
  const size_t count = chunk.blocks.size() / per_block;
  if (chunk.first_index > block_count() || count > block_count() - chunk.first_index) {
    return InvalidArgument(
        "blocks {}+{} are outside a prompt of {} blocks", chunk.first_index, count, block_count());
  }
  if (seal_wanted_) {
    return InvalidArgument("blocks {}+{} came after Seal", chunk.first_index, count);
  }
  const bool last = count > 0 && chunk.first_index + count == block_count();
  const uint32_t state_blocks = last ? params_.state_blocks : 0;
  if (chunk.state.size() != state_blocks) {
    return InvalidArgument("blocks {}+{} of {} were added with {} blocks of the state; it has {}",
                           chunk.first_index,
                           count,
                           block_count(),
                           chunk.state.size(),
                           state_blocks);
  }
  return OkStatus();
}

Status SenderSession::AddBlocks(const Chunk& chunk, Time now) {
  BATON_RETURN_IF_ERROR(CheckChunk(chunk));
  const size_t per_block = params_.owed.block_groups();
  const size_t count = chunk.blocks.size() / per_block;
  const uint32_t groups = std::min(chunk.layer_groups, params_.layer_groups);
  if (!chunk.state.empty()) state_sources_.assign(chunk.state.begin(), chunk.state.end());
  uint64_t added = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = chunk.first_index + i;
    uint32_t& ready = ready_[index];
    if (groups <= ready) continue;
    std::ranges::copy(chunk.blocks.subspan(i * per_block, per_block),
                      sources_.begin() + static_cast<ptrdiff_t>(index * per_block));
    added += groups - ready;
    ready = groups;
    if (ready == params_.layer_groups) ++ready_count_;
  }
  if (added == 0) return OkStatus();
  if (ready_groups_ == 0) {
    first_ready_ = now;
    first_groups_ = added;
  }
  ready_groups_ += added;
  last_groups_ = added;
  if (!live()) return OkStatus();
  if (holds_back_ && !CanWait(now)) {
    holds_back_ = false;
    actions_.emplace_back(StartWrites{});
  }
  PostReady(chunk.first_index, chunk.first_index + static_cast<uint32_t>(count));
  return OkStatus();
}

// Decides whether to wait until the next AddBlocks, which is expected to add as much as the last
// one.
bool SenderSession::CanWait(Time now) const {
  const uint64_t groups = uint64_t{block_count()} * params_.layer_groups;
  const uint64_t then_ready = ready_groups_ + last_groups_;
  if (then_ready >= groups) return false;
  const uint64_t computed = ready_groups_ - first_groups_;
  if (computed == 0) return true;  // speed unknown; at least two more calls will come
  const double group_compute = ToSeconds(now - first_ready_) / static_cast<double>(computed);
  return static_cast<double>(groups - then_ready) * group_compute >
         kWaitMargin * static_cast<double>(then_ready) * ToSeconds(group_time_);
}

void SenderSession::Seal(std::string payload, Time now) {
  if (seal_wanted_ || state_ >= SenderState::kDraining) return;
  if (ready_count_ != block_count()) {
    return Abort(
        InvalidArgument("Seal was called when {} of {} blocks were added; it needs all of them",
                        ready_count_,
                        block_count()),
        now);
  }
  seal_wanted_ = true;
  seal_.payload = std::move(payload);
  SendSealWhenPosted(now);
}

void SenderSession::Abort(Status reason, Time now) {
  if (state_ >= SenderState::kDraining) return;
  if (state_ != SenderState::kRefused) Send(Fail{reason}, now);
  Drain(std::move(reason), now);
}

void SenderSession::OnMessage(const ControlMessage& message, Time now) {
  last_heard_ = now;
  if (const auto* grant = std::get_if<Grant>(&message)) return OnGrant(*grant, now);
  if (const auto* ack = std::get_if<Ack>(&message)) return OnAck(*ack, now);
  if (const auto* resend = std::get_if<Resend>(&message)) return OnResend(*resend, now);
  if (std::holds_alternative<Renew>(message)) {
    peer_answered_ = true;
  } else if (const auto* refuse = std::get_if<Refuse>(&message)) {
    if (state_ == SenderState::kOffered) Park(refuse->status);
  } else if (const auto* abort = std::get_if<baton::Abort>(&message)) {
    if (state_ == SenderState::kRefused) return Send(DrainAck{}, now);
    drain_asked_ = true;
    if (state_ < SenderState::kDraining) Drain(abort->status, now);
  }
}

void SenderSession::OnGrant(const Grant& grant, Time now) {
  if (state_ == SenderState::kRefused || state_ >= SenderState::kDraining) {
    // The session does not wait for this grant any more: FAIL makes the peer release its blocks.
    return Send(Fail{MakeStatus(StatusCode::kCancelled,
                                "the sender does not wait for this grant any more")},
                now);
  }
  if (state_ != SenderState::kOffered) {
    if (grant == grant_) return;
    return Abort(MakeStatus(StatusCode::kFailedPrecondition, "a second, different GRANT came"),
                 now);
  }
  const Status fits = CheckOwed(grant, params_.owed, peer_state_blocks_);
  if (!fits.ok()) return Abort(fits, now);
  grant_ = grant;
  state_ = SenderState::kStreaming;
  // Links without a known layer group are written when every layer is ready.
  if (link_groups_.size() != grant_.links) {
    link_groups_.assign(grant_.links, {.layer_group = params_.layer_groups - 1});
  }
  pieces_ = PieceIndex(params_.owed, grant_.cached_blocks, link_groups_);
  posted_.assign(block_count(), 0);
  to_post_ = pieces_.total();
  seal_.blocks = BlocksIn(grant_);
  if (grant_.checksums) seal_.checksums.assign(to_post_, 0);
  actions_.emplace_back(ReportGranted{});
  holds_back_ = group_time_ > Duration{} && (ready_groups_ == 0 || CanWait(now));
  PostReady(0, block_count());
  SendSealWhenPosted(now);
}

void SenderSession::PostReady(uint32_t first, uint32_t end) {
  // Groups the blocks by the layer groups that they lack: (posted, ready).
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> lacking;
  for (uint32_t block = std::max(first, grant_.cached_blocks); block < end; ++block) {
    if (ready_[block] <= posted_[block]) continue;
    lacking[{posted_[block], ready_[block]}].push_back(block);
    posted_[block] = ready_[block];
  }
  for (const auto& [groups, blocks] : lacking) Post(blocks, groups.first, groups.second);
}

void SenderSession::Post(std::span<const uint32_t> blocks,
                         uint32_t first_group,
                         uint32_t end_group) {
  for (uint32_t cache_group = 0; cache_group < cache_groups(); ++cache_group) {
    const auto links = std::ranges::count_if(link_groups_, [&](const LinkGroups& link) {
      return link.cache_group == cache_group && link.layer_group >= first_group &&
             link.layer_group < end_group;
    });
    if (links == 0) continue;
    const uint32_t from = params_.owed.from(cache_group, grant_.cached_blocks);
    PostBlocks post = {.cache_group = cache_group,
                       .blocks = {},
                       .first_group = first_group,
                       .end_group = end_group,
                       .held = holds_back_,
                       .urgent = ready_count_ == block_count()};
    for (const uint32_t block : blocks) {
      if (block >= from) post.blocks.push_back(block - from);
    }
    if (post.blocks.empty()) continue;
    post.pieces = static_cast<uint32_t>(post.blocks.size() * static_cast<size_t>(links));
    to_post_ -= post.pieces;
    unposted_ += post.pieces;
    outstanding_ += post.pieces;
    actions_.emplace_back(std::move(post));
  }
}

void SenderSession::OnPosted(
    uint32_t link, uint32_t first, std::span<const uint64_t> checksums, uint64_t bytes, Time now) {
  BATON_CHECK(
      unposted_ >= checksums.size(), "{} pieces posted, {} expected", checksums.size(), unposted_);
  unposted_ -= checksums.size();
  if (state_ == SenderState::kStreaming) seal_.bytes += bytes;
  if (grant_.checksums) {
    std::copy(checksums.begin(),
              checksums.end(),
              seal_.checksums.begin() + static_cast<ptrdiff_t>(pieces_.at(link, first)));
  }
  SendSealWhenPosted(now);
}

void SenderSession::SendSealWhenPosted(Time now) {
  if (state_ != SenderState::kStreaming || !seal_wanted_ || to_post_ != 0 || unposted_ != 0) return;
  state_ = SenderState::kSealed;
  Send(seal_, now);
}

void SenderSession::OnResend(const Resend& resend, Time now) {
  // One repair is allowed. A repeated RESEND of the same attempt is not a second repair.
  if (state_ != SenderState::kSealed || resend.attempt != resend_attempt_ + 1) return;
  ++resend_attempt_;
  for (const uint32_t block : resend.blocks) {
    if (block < grant_.cached_blocks || block >= block_count()) {
      return Abort(InvalidArgument("RESEND asks for block {}; blocks {} to {} were granted",
                                   block,
                                   grant_.cached_blocks,
                                   block_count()),
                   now);
    }
    if (posted_[block] == 0) continue;
    posted_[block] = 0;
    for (uint32_t link = 0; link < pieces_.links(); ++link) {
      if (block >= pieces_.first_block(link)) ++to_post_;
    }
    ++resent_;
  }
  PostReady(0, block_count());
}

void SenderSession::OnWritten(uint32_t pieces, uint64_t bytes, Time now) {
  BATON_CHECK(outstanding_ >= pieces, "{} pieces written, {} outstanding", pieces, outstanding_);
  outstanding_ -= pieces;
  bytes_ += bytes;
  last_heard_ = now;
  EndWhenDrained(now);
}

void SenderSession::OnWriteLost(uint32_t pieces, const Status& reason, Time now) {
  BATON_CHECK(outstanding_ >= pieces, "{} pieces lost, {} outstanding", pieces, outstanding_);
  outstanding_ -= pieces;
  if (state_ < SenderState::kDraining) return Abort(reason, now);
  EndWhenDrained(now);
}

void SenderSession::OnAck(const Ack&, Time now) {
  if (state_ == SenderState::kSealed) Drain(OkStatus(), now);
}

void SenderSession::OnPeerLost(Status reason, Time now) {
  if (state_ == SenderState::kOffered) return Park(std::move(reason));
  if (live()) Drain(std::move(reason), now);
}

void SenderSession::Park(Status reason) {
  state_ = SenderState::kRefused;
  actions_.emplace_back(ReportRefused{std::move(reason)});
}

void SenderSession::Drain(Status outcome, Time now) {
  state_ = SenderState::kDraining;
  outcome_ = std::move(outcome);
  drain_until_ = now + times_.drain;
  if (outstanding_ > 0 && !outcome_.ok()) actions_.emplace_back(StopWrites{});
  EndWhenDrained(now);
}

void SenderSession::EndWhenDrained(Time now) {
  if (state_ < SenderState::kDraining || state_ == SenderState::kEnded || outstanding_ > 0) return;
  state_ = SenderState::kEnded;
  if (drain_asked_) Send(DrainAck{}, now);
  actions_.emplace_back(ReportEnd{outcome_});
}

void SenderSession::OnTime(Time now) {
  switch (state_) {
    case SenderState::kQuarantined:
    case SenderState::kEnded:
      return;
    case SenderState::kDraining:
      if (now < drain_until_) return;
      state_ = SenderState::kFencing;
      drain_until_ = now + times_.fence;
      actions_.emplace_back(FenceWrites{});
      return;
    case SenderState::kFencing:
      if (now < drain_until_) return;
      state_ = SenderState::kQuarantined;
      actions_.emplace_back(ReportQuarantined{});
      return;
    default:
      break;
  }
  if (now >= deadline_) {
    return Abort(MakeStatus(StatusCode::kDeadlineExceeded,
                            "KV hand-off not finished after {:.3f} s, {}",
                            ToSeconds(params_.timeout),
                            Name(state_)),
                 now);
  }
  if (state_ == SenderState::kRefused) return;
  if (now >= last_heard_ + times_.lease) {
    Status silent = MakeStatus(
        StatusCode::kUnavailable, "peer silent for {:.3f} s", ToSeconds(now - last_heard_));
    if (state_ != SenderState::kOffered) return Abort(std::move(silent), now);
    Send(Fail{silent}, now);
    return Park(std::move(silent));
  }
  if (now >= last_sent_ + times_.renew) SendStateAgain(now);
}

void SenderSession::SendStateAgain(Time now) {
  if (state_ == SenderState::kOffered && !peer_answered_) return SendOffer(now);
  if (state_ == SenderState::kSealed) return Send(seal_, now);
  Send(Renew{live(), static_cast<uint32_t>(pieces_.total() - to_post_)}, now);
}

Time SenderSession::wake_time() const {
  switch (state_) {
    case SenderState::kQuarantined:
    case SenderState::kEnded:
      return kNever;
    case SenderState::kDraining:
    case SenderState::kFencing:
      return drain_until_;
    case SenderState::kRefused:
      return deadline_;
    default:
      return std::min({deadline_, last_heard_ + times_.lease, last_sent_ + times_.renew});
  }
}

uint32_t SenderSession::posted_blocks() const {
  uint32_t count = 0;
  for (uint32_t group = 0; group < params_.owed.block_groups(); ++group) {
    for (size_t block = params_.owed.from(group, grant_.cached_blocks); block < posted_.size();
         ++block) {
      count += posted_[block] == params_.layer_groups ? 1 : 0;
    }
  }
  if (params_.owed.state && !posted_.empty() && posted_.back() == params_.layer_groups) {
    count += static_cast<uint32_t>(grant_.blocks.back().size());
  }
  return count;
}

uint32_t SenderSession::source_blocks() const {
  auto count = static_cast<uint32_t>(state_sources_.size());
  for (uint32_t group = 0; group < params_.owed.block_groups(); ++group) {
    count += block_count() - params_.owed.from(group, 0);
  }
  return count;
}

double SenderSession::unwritten_part() const {
  return static_cast<double>(to_post_ + outstanding_) /
         static_cast<double>(std::max<size_t>(1, pieces_.total()));
}

void SenderSession::SendOffer(Time now) {
  Send(Offer{params_.total_tokens, deadline_ - now}, now);
}

void SenderSession::Send(ControlMessage message, Time now) {
  last_sent_ = now;
  actions_.emplace_back(SendControl{std::move(message)});
}

}  // namespace baton

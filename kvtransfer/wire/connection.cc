#include "kvtransfer/wire/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/granule_checksum.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

// Payload bytes of one MovePayload that does not hash them: they are hashed directly afterwards,
// while they are in the cache.
constexpr size_t kReadBytes = size_t{128} << 10;
constexpr size_t kReadRuns = 64;
// Unsent acknowledgements beyond which no further frame is read from the peer.
constexpr size_t kMaxAckBytes = size_t{64} << 10;
constexpr size_t kMaxDescriptors = 2;

}  // namespace

Connection::Connection(Options options, WindowTable& windows, Time now)
    : socket_(std::move(options.socket)),
      peer_(std::move(options.peer)),
      kind_(options.kind),
      dma_(options.dma),
      epoll_fd_(options.epoll_fd),
      windows_(windows),
      proofs_(std::move(options.proofs)),
      requires_tags_(options.requires_tags),
      proof_(proofs_ == nullptr ? nullptr : proofs_->Make(PeerSide::kListener, kDataPurpose)),
      state_(proof_ == nullptr ? State::kPreface : State::kProof),
      last_progress_(now) {}

Connection::~Connection() = default;

Status Connection::Step(Time now, size_t quantum) {
  budget_ = quantum;
  moved_ = 0;
  has_more_ = false;
  if (staging_) BATON_RETURN_IF_ERROR(TakeLanded());
  const State state_before = state_;
  const size_t filled_before = filled_;
  while (acks_.size() < kMaxAckBytes) {
    if (budget_ == 0) {
      has_more_ = true;
      break;
    }
    BATON_ASSIGN_OR_RETURN(const bool advanced, Advance());
    if (!advanced) break;
  }
  if (budget_ != quantum || state_ != state_before || filled_ != filled_before) {
    last_progress_ = now;
  }
  return FlushAcks();
}

Time Connection::stalled_since() const {
  const bool between = state_ == State::kHeader && filled_ == 0 && acks_.empty();
  return between ? kNever : last_progress_;
}

void Connection::OnWindowClosed(uint64_t key) {
  if (state_ >= State::kPayload && header_.window_key == key && verdict_.ok()) {
    verdict_ = MakeStatus(StatusCode::kAborted, "the write window was closed");
  }
  for (Landing& landing : landing_) {
    if (landing.header.window_key != key) continue;
    staging_->Wait(landing.buffer);
    landing.verdict = MakeStatus(StatusCode::kAborted, "the write window was closed");
  }
}

StatusOr<bool> Connection::Advance() {
  switch (state_) {
    case State::kProof:
      return ReceiveProof();
    case State::kPreface:
      return ReceivePreface();
    case State::kPrefaceTag: {
      BATON_ASSIGN_OR_RETURN(const bool complete, ReceiveTag("the preface"));
      if (!complete) return false;
      BATON_RETURN_IF_ERROR(AcceptPreface());
      return true;
    }
    case State::kHeader: {
      BATON_ASSIGN_OR_RETURN(const bool complete, Fill(&header_, sizeof(header_)));
      if (!complete) return false;
      BATON_RETURN_IF_ERROR(CheckHeader(header_));
      runs_.resize(header_.run_count);
      state_ = State::kRuns;
      return true;
    }
    case State::kRuns: {
      BATON_ASSIGN_OR_RETURN(const bool complete,
                             Fill(runs_.data(), runs_.size() * sizeof(WriteRun)));
      if (!complete) return false;
      if (received_mac_) {
        received_mac_->Update(std::as_bytes(std::span(&header_, 1)));
        received_mac_->Update(std::as_bytes(std::span(runs_)));
        state_ = State::kRunsTag;
        return true;
      }
      BATON_RETURN_IF_ERROR(StartFrame());
      return true;
    }
    // Nothing is written before this tag was checked: it also protects the places to write to.
    case State::kRunsTag: {
      BATON_ASSIGN_OR_RETURN(const bool complete, ReceiveTag("the header of a write"));
      if (!complete) return false;
      BATON_RETURN_IF_ERROR(StartFrame());
      return true;
    }
    case State::kPayload:
      return ContinuePayload();
    case State::kPayloadTag: {
      BATON_ASSIGN_OR_RETURN(const bool complete, ReceiveTag("the payload of a write"));
      if (complete) FinishFrame();
      return complete;
    }
  }
  return false;
}

StatusOr<bool> Connection::Fill(void* to, size_t size) {
  while (filled_ < size) {
    const iovec rest{static_cast<char*>(to) + filled_, size - filled_};
    BATON_ASSIGN_OR_RETURN(const size_t got, Receive({&rest, 1}));
    if (got == 0) return false;
    filled_ += got;
    budget_ -= std::min(budget_, got);
  }
  filled_ = 0;
  return true;
}

StatusOr<bool> Connection::ReceiveProof() {
  BATON_ASSIGN_OR_RETURN(const bool complete, Fill(proof_message_.data(), proof_message_.size()));
  // Other protocols send less than a message, or wait for an answer, so the first bytes decide.
  const size_t filled = complete ? proof_message_.size() : filled_;
  const std::string_view message(proof_message_.data(), filled);
  const size_t known = std::min(filled, kPeerProofMagic.size());
  const bool garbage = message.substr(0, known) != kPeerProofMagic.substr(0, known);
  if (!complete && !garbage) return false;
  StatusOr<std::string> answer = proof_->OnMessage(message);
  if (!answer.ok()) {
    proofs_->OnRefused(kDataPurpose, peer_, answer.status());
    return answer.status();
  }
  acks_ += *answer;
  if (proof_->done()) state_ = State::kPreface;
  return true;
}

StatusOr<bool> Connection::ReceivePreface() {
  BATON_ASSIGN_OR_RETURN(const bool complete, Fill(&preface_, sizeof(preface_)));
  if (!complete) return false;
  BATON_RETURN_IF_ERROR(CheckPreface(preface_, kind_));
  BATON_RETURN_IF_ERROR(AgreeOnTags());
  if (received_mac_) {
    received_mac_->Update(std::as_bytes(std::span(&preface_, 1)));
    state_ = State::kPrefaceTag;
    return true;
  }
  BATON_RETURN_IF_ERROR(AcceptPreface());
  return true;
}

Status Connection::AgreeOnTags() {
  if ((preface_.flags & kAuthenticated) == 0) {
    if (!requires_tags_) return OkStatus();
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the peer does not authenticate its frames, and this worker requires that; "
                      "set transfer.tcp_authenticate_frames of both");
  }
  if (proof_ == nullptr) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the peer authenticates its frames, but this worker has no key for that; set "
                      "its security.cluster_secret_file");
  }
  received_mac_ = proof_->MakeMac(PeerSide::kDialler);
  sent_mac_ = proof_->MakeMac(PeerSide::kListener);
  return OkStatus();
}

StatusOr<bool> Connection::ReceiveTag(std::string_view message) {
  BATON_ASSIGN_OR_RETURN(const bool complete, Fill(tag_.data(), tag_.size()));
  if (!complete) return false;
  const MacTag computed = received_mac_->Finish();
  // A payload that is discarded is not read, so its tag is not known.
  if (state_ == State::kPayloadTag && !verdict_.ok()) return true;
  const Status checked = CheckTag(tag_, computed, message);
  if (!checked.ok()) {
    proofs_->OnRefused(kDataPurpose, peer_, checked);
    return checked;
  }
  return true;
}

Status Connection::AcceptPreface() {
  const WindowTable::Memory* memory = windows_.Find(preface_.region);
  if (memory == nullptr) {
    return InvalidArgument("the peer wants to write region {}, which is unknown", preface_.region);
  }
  if (memory->buffer->kind() != MemoryKind::kHost) {
    BATON_ASSIGN_OR_RETURN(staging_, StagingBuffers::Create(*dma_, *memory->buffer, epoll_fd_));
  }
  BATON_RETURN_IF_ERROR(OnPreface(std::exchange(descriptors_, {})));
  state_ = State::kHeader;
  return OkStatus();
}

Status Connection::StartFrame() {
  BATON_RETURN_IF_ERROR(CheckRuns(header_, runs_));
  BATON_RETURN_IF_ERROR(BeginPayload(header_, runs_));
  ranges_ = DestinationRanges(runs_);
  verdict_ = windows_.CheckWrite(header_.window_key, preface_.region, ranges_);
  if (staging_ && header_.payload_bytes > StagingBuffers::kBufferBytes) {
    verdict_ = InvalidArgument("a write of {} bytes into a GPU's memory; at most {} are allowed",
                               header_.payload_bytes,
                               StagingBuffers::kBufferBytes);
  }
  state_ = State::kPayload;
  run_ = 0;
  run_offset_ = 0;
  left_ = header_.payload_bytes;
  hasher_.Start(header_.granule);
  // The copies of short runs are faster in a row: each waits for memory, and none for a hash.
  is_hashed_on_the_way_ = kind_ == PayloadKind::kMapped && header_.run_count > 0 &&
                          header_.payload_bytes / header_.run_count >= kChecksumPartBytes;
  is_scattered_ = kind_ == PayloadKind::kInline && !staging_ && header_.run_count > 1 &&
                  header_.payload_bytes / header_.run_count < kMaxStagedRunBytes;
  if (is_scattered_) scatter_.resize(kReadBytes);
  return OkStatus();
}

StatusOr<bool> Connection::ContinuePayload() {
  if (left_ > 0) {
    if (staging_ && verdict_.ok() && buffer_ < 0) {
      BATON_ASSIGN_OR_RETURN(buffer_, staging_->Take());
      if (buffer_ < 0) return false;  // until a buffer is free
    }
    const size_t most = is_hashed_on_the_way_ ? kMaxOpBytes : kReadBytes;
    const size_t limit = std::min<uint64_t>({left_, most, std::max<size_t>(budget_, 1)});
    std::array<iovec, kReadRuns> to;
    size_t count = 0;
    size_t bytes = 0;
    if (verdict_.ok() && staging_) {
      to[count++] = {staging_->data(buffer_) + (header_.payload_bytes - left_), limit};
      bytes = limit;
    } else if (verdict_.ok() && is_scattered_) {
      to[count++] = {scatter_.data(), limit};
      bytes = limit;
    } else if (verdict_.ok()) {
      std::byte* base = windows_.Find(preface_.region)->data;
      uint64_t offset = run_offset_;
      for (size_t run = run_; run < runs_.size() && count < to.size() && bytes < limit; ++run) {
        const size_t part = std::min<uint64_t>(runs_[run].bytes - offset, limit - bytes);
        to[count++] = {base + runs_[run].destination + offset, part};
        bytes += part;
        offset = 0;
      }
    }
    BATON_ASSIGN_OR_RETURN(const size_t moved,
                           MovePayload({to.data(), count},
                                       verdict_.ok() ? bytes : limit,
                                       is_hashed_on_the_way_ ? &hasher_ : nullptr));
    if (moved == 0) return false;
    budget_ -= std::min(budget_, moved);
    moved_ += moved;
    if (verdict_.ok()) Place(moved);
    left_ -= moved;
  }
  if (left_ > 0) return true;
  if (received_mac_) {
    state_ = State::kPayloadTag;
  } else {
    FinishFrame();
  }
  return true;
}

void Connection::Place(size_t bytes) {
  const auto update = [&](std::span<const std::byte> landed) {
    if (!is_hashed_on_the_way_) hasher_.Update(landed);
    if (received_mac_) received_mac_->Update(landed);
  };
  if (staging_) {
    return update({staging_->data(buffer_) + (header_.payload_bytes - left_), bytes});
  }
  if (is_scattered_) update(std::span(scatter_).first(bytes));
  const std::byte* from = scatter_.data();
  std::byte* const base = windows_.Find(preface_.region)->data;
  while (bytes > 0) {
    const WriteRun& run = runs_[run_];
    const size_t part = std::min<uint64_t>(bytes, run.bytes - run_offset_);
    std::byte* const place = base + run.destination + run_offset_;
    if (is_scattered_) {
      std::memcpy(place, from, part);
      from += part;
    } else {
      update({place, part});
    }
    run_offset_ += part;
    bytes -= part;
    if (run_offset_ < run.bytes) continue;
    ++run_;
    run_offset_ = 0;
  }
}

void Connection::FinishFrame() {
  if (!FinishPayload(header_) && verdict_.ok()) {
    verdict_ = MakeStatus(StatusCode::kAborted, "the sender took the write back");
  }
  state_ = State::kHeader;
  Landing landing{
      header_, std::move(ranges_), hasher_.Take(), std::exchange(buffer_, -1), verdict_};
  if (landing.verdict.ok() && landing.buffer >= 0) {
    landing.verdict = staging_->CopyIn(landing.buffer, landing.ranges);
    if (landing.verdict.ok()) return landing_.push_back(std::move(landing));
  }
  Conclude(std::move(landing));
}

Status Connection::TakeLanded() {
  BATON_RETURN_IF_ERROR(staging_->Poll());
  while (!landing_.empty() && !staging_->is_busy(landing_.front().buffer)) {
    Landing landed = std::move(landing_.front());
    landing_.pop_front();
    Conclude(std::move(landed));
  }
  return OkStatus();
}

void Connection::Conclude(Landing landing) {
  if (landing.buffer >= 0) staging_->Free(landing.buffer);
  if (landing.verdict.ok()) {
    Arrival arrival;
    arrival.window_key = landing.header.window_key;
    arrival.region = preface_.region;
    arrival.tag = landing.header.tag;
    arrival.bytes = landing.header.payload_bytes;
    arrival.ranges = std::move(landing.ranges);
    arrival.checksums = std::move(landing.checksums);
    windows_.Report(std::move(arrival));
  }
  WriteAck ack;
  ack.code = static_cast<uint32_t>(landing.verdict.code());
  ack.op = landing.header.op;
  acks_.append(reinterpret_cast<const char*>(&ack), sizeof(ack));
  if (!sent_mac_) return;
  sent_mac_->Update(std::as_bytes(std::span(&ack, 1)));
  const MacTag tag = sent_mac_->Finish();
  acks_.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

Status Connection::FlushAcks() {
  while (!acks_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), acks_.data(), acks_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      if (errno == EINTR) continue;
      return MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno));
    }
    acks_.erase(0, static_cast<size_t>(sent));
  }
  return OkStatus();
}

StatusOr<size_t> Connection::Receive(std::span<const iovec> to) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(to.data());
  message.msg_iovlen = to.size();
  const bool may_carry_descriptors =
      kind_ == PayloadKind::kMapped && state_ == State::kPreface && descriptors_.empty();
  if (may_carry_descriptors) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    return MakeStatus(StatusCode::kUnavailable, "receive: {}", std::strerror(errno));
  }
  if (may_carry_descriptors) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        descriptors_.emplace_back(fd);
      }
    }
  }
  if (got > 0) return static_cast<size_t>(got);
  // A peer that only tests whether it can connect sends nothing at all.
  const bool between_frames = filled_ == 0 && (state_ == State::kHeader || in_preface());
  if (between_frames) return MakeStatus(StatusCode::kOutOfRange, "closed by the peer");
  return MakeStatus(StatusCode::kUnavailable, "closed by the peer in the middle of a frame");
}

}  // namespace baton

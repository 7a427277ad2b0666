#include "common/collective/mpi/mpi_runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/thread.h"

namespace baton {
namespace {

constexpr int kAbortTag = 0;
constexpr int kCloseTag = 1;
constexpr int kLetterTag = 2;
constexpr size_t kMaxMessageBytes = size_t{64} << 20;
constexpr Duration kCloseLimit = std::chrono::seconds(2);
constexpr Duration kShortestSleep = std::chrono::microseconds(20);
constexpr Duration kLongestSleep = std::chrono::microseconds(500);
// Before a rank sleeps, it lets the other ranks of its processor run this many times.
constexpr int kYields = 10;
// Between two looks of the thread that lets MPI send.
constexpr Duration kSendPause = std::chrono::microseconds(50);
constexpr size_t kMaxLetterBytes = size_t{1} << 30;

Status MpiError(std::string_view call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return MakeStatus(StatusCode::kUnavailable, "{}: {}", call, std::string_view(text, length));
}

}  // namespace

StatusOr<std::unique_ptr<MpiRuntime>> MpiRuntime::Start() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    return MakeStatus(StatusCode::kFailedPrecondition, "MPI is already in use in this process");
  }
  // OpenMPI's plugins expect its symbols to be global. This process opened them as local ones with
  // the shared object that contains this function.
  dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  int level = MPI_THREAD_SINGLE;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
      code != MPI_SUCCESS) {
    return MpiError("MPI_Init_thread", code);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "this MPI supports thread level {}; MPI_THREAD_SERIALIZED ({}) is needed",
                      level,
                      static_cast<int>(MPI_THREAD_SERIALIZED));
  }
  std::unique_ptr<MpiRuntime> runtime(new MpiRuntime);
  MPI_Comm_dup(MPI_COMM_WORLD, &runtime->world_);
  MPI_Comm_set_errhandler(runtime->world_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(runtime->world_, &runtime->rank_);
  MPI_Comm_size(runtime->world_, &runtime->size_);
  BATON_RETURN_IF_ERROR(runtime->FindHosts());
  const int code = MPI_Irecv(&runtime->incoming_,
                             sizeof(AbortNotice),
                             MPI_BYTE,
                             MPI_ANY_SOURCE,
                             kAbortTag,
                             runtime->world_,
                             &runtime->notice_);
  if (code != MPI_SUCCESS) return MpiError("MPI_Irecv", code);
  return runtime;
}

MpiRuntime::~MpiRuntime() {
  sender_ = {};
  Close();
}

Status MpiRuntime::FindHosts() {
  MPI_Comm here = MPI_COMM_NULL;
  if (const int code = MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
      code != MPI_SUCCESS) {
    return MpiError("MPI_Comm_split_type", code);
  }
  MPI_Comm_size(here, &ranks_here_);
  int first = rank_;
  MPI_Allreduce(&rank_, &first, 1, MPI_INT, MPI_MIN, here);
  MPI_Comm_free(&here);
  first_on_host_.resize(size_);
  const int code = MPI_Allgather(&first, 1, MPI_INT, first_on_host_.data(), 1, MPI_INT, world_);
  return code == MPI_SUCCESS ? OkStatus() : MpiError("MPI_Allgather", code);
}

void MpiRuntime::Close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
  }
  const bool all = AllAreClosing();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (!all) return;
  if (notice_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&notice_);
    MPI_Wait(&notice_, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
}

Status MpiRuntime::Usable() {
  return closed_ ? MakeStatus(StatusCode::kUnavailable, "MPI is closed in this process")
                 : OkStatus();
}

Status MpiRuntime::Post(int to, std::string bytes) {
  if (bytes.size() > kMaxLetterBytes) {
    return InvalidArgument(
        "a letter of {} bytes; at most {} are allowed", bytes.size(), kMaxLetterBytes);
  }
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  ForgetSentLetters();
  OpenLetter& sent = sent_letters_.emplace_back();
  sent.letter = {to, std::move(bytes)};
  const std::string& data = sent.letter.bytes;
  const int code = MPI_Isend(
      data.data(), static_cast<int>(data.size()), MPI_BYTE, to, kLetterTag, world_, &sent.request);
  return code == MPI_SUCCESS ? OkStatus() : MpiError("MPI_Isend", code);
}

void MpiRuntime::ForgetSentLetters() {
  while (!sent_letters_.empty()) {
    int done = 0;
    if (MPI_Test(&sent_letters_.front().request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done == 0) return;
    sent_letters_.pop_front();
  }
}

Status MpiRuntime::SendAhead(int to,
                             std::span<const std::byte> bytes,
                             size_t ahead,
                             const MpiWait& wait) {
  BATON_RETURN_IF_ERROR(abort_status());
  Ahead* sent = nullptr;
  {
    const std::lock_guard lock(mutex_);
    sent = &ahead_.emplace_back();
    sent->bytes.assign(bytes.begin(), bytes.end());
    if (!sender_.joinable()) {
      sender_ = StartThread("mpi", [this](const std::stop_token& stop) { KeepSending(stop); });
    }
  }
  // The entry stays until it has requests, and all of them are complete.
  BATON_RETURN_IF_ERROR(
      Post({{.peer = to, .is_send = true, .bytes = sent->bytes}}, wait.tag, sent->pending));
  sends_ahead_.notify_one();
  const SteadyClock clock;
  const Time start = clock.Now();
  while (true) {
    BATON_ASSIGN_OR_RETURN(const size_t unsent, SendMore());
    if (unsent <= ahead) return OkStatus();
    BATON_RETURN_IF_ERROR(abort_status());
    if (clock.Now() - start >= wait.limit) {
      const std::string message =
          fmt::format("rank {} did not come within {} ms", to, ToMillis(wait.limit));
      Abort(to, message);
      return MakeStatus(StatusCode::kDeadlineExceeded, "{}", message);
    }
    std::this_thread::sleep_for(kSendPause);
  }
}

StatusOr<size_t> MpiRuntime::SendMore() {
  size_t unsent = 0;
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  for (Ahead& one : ahead_) {
    for (MPI_Request& request : one.pending.requests) {
      int done = 0;
      if (const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS) {
        return MpiError("MPI_Test", code);
      }
    }
  }
  const auto is_sent = [](const Ahead& one) {
    return !one.pending.requests.empty() &&
           std::ranges::all_of(one.pending.requests,
                               [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  };
  while (!ahead_.empty() && is_sent(ahead_.front())) ahead_.pop_front();
  for (const Ahead& one : ahead_) unsent += one.bytes.size();
  return unsent;
}

void MpiRuntime::KeepSending(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      sends_ahead_.wait(lock, stop, [this] { return !ahead_.empty(); });
    }
    const auto unsent = SendMore();
    if (!unsent.ok()) return;
    std::this_thread::sleep_for(kSendPause);
  }
}

StatusOr<std::optional<MpiLetter>> MpiRuntime::ReceiveLetter() {
  if (!receiving_.has_value()) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status = {};
    int bytes = 0;
    int code = MPI_Improbe(MPI_ANY_SOURCE, kLetterTag, world_, &found, &message, &status);
    if (code != MPI_SUCCESS) return MpiError("MPI_Improbe", code);
    if (found == 0) return std::optional<MpiLetter>();
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    receiving_.emplace();
    receiving_->letter = {status.MPI_SOURCE, std::string(static_cast<size_t>(bytes), '\0')};
    code = MPI_Imrecv(
        receiving_->letter.bytes.data(), bytes, MPI_BYTE, &message, &receiving_->request);
    if (code != MPI_SUCCESS) return MpiError("MPI_Imrecv", code);
  }
  int done = 0;
  const int code = MPI_Test(&receiving_->request, &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) return MpiError("MPI_Test", code);
  if (done == 0) return std::optional<MpiLetter>();
  std::optional<MpiLetter> letter = std::move(receiving_->letter);
  receiving_.reset();
  return letter;
}

StatusOr<std::optional<MpiLetter>> MpiRuntime::Take(Duration timeout, Duration pause) {
  const SteadyClock clock;
  const Time end = clock.Now() + timeout;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      BATON_RETURN_IF_ERROR(Usable());
      ReceiveAbortNotice();
      if (!aborted_) {
        ForgetSentLetters();
        BATON_ASSIGN_OR_RETURN(std::optional<MpiLetter> letter, ReceiveLetter());
        if (letter.has_value()) return letter;
      }
    }
    BATON_RETURN_IF_ERROR(abort_status());
    const Time now = clock.Now();
    if (now >= end) return std::optional<MpiLetter>();
    std::this_thread::sleep_for(std::min<Duration>(pause, end - now));
  }
}

bool MpiRuntime::AllAreClosing() {
  const auto buffers = std::make_shared<MpiBuffers>();
  buffers->out.resize(1);
  buffers->in.resize(size_);
  std::vector<MpiMessage> messages;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    messages.push_back({.peer = peer, .is_send = true, .bytes = buffers->out});
    messages.push_back(
        {.peer = peer, .is_send = false, .bytes = std::span(buffers->in).subspan(peer, 1)});
  }
  const MpiWait wait = {
      .tag = kCloseTag, .limit = kCloseLimit, .busy_poll = Duration(0), .abortable = false};
  return Exchange(messages, buffers, wait).ok();
}

Status MpiRuntime::Exchange(const std::vector<MpiMessage>& messages,
                            const std::shared_ptr<MpiBuffers>& buffers,
                            const MpiWait& wait) {
  if (wait.abortable) BATON_RETURN_IF_ERROR(abort_status());
  const SteadyClock clock;
  const Time start = clock.Now();
  Pending pending;
  Status error = Post(messages, wait.tag, pending);
  Duration sleep = kShortestSleep;
  for (int tries = 0; error.ok(); ++tries) {
    const StatusOr<bool> done = Test(pending);
    if (done.ok() && *done) return OkStatus();
    if (!done.ok()) {
      error = done.status();
      Abort(rank_, Message(error));
      break;
    }
    if (wait.abortable) error = abort_status();
    const Duration waited = clock.Now() - start;
    if (error.ok() && waited >= wait.limit) error = TooLate(pending, wait);
    if (!error.ok() || waited < wait.busy_poll) continue;
    if (tries < kYields) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::min(sleep, wait.limit - waited));
    sleep = std::min(2 * sleep, kLongestSleep);
  }
  Abandon(pending, buffers);
  return error;
}

Status MpiRuntime::Post(const std::vector<MpiMessage>& messages, int tag, Pending& pending) {
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  for (const MpiMessage& message : messages) {
    for (size_t at = 0; at < message.bytes.size(); at += kMaxMessageBytes) {
      const auto bytes = static_cast<int>(std::min(message.bytes.size() - at, kMaxMessageBytes));
      std::byte* const data = message.bytes.data() + at;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = message.is_send
                           ? MPI_Isend(data, bytes, MPI_BYTE, message.peer, tag, world_, &request)
                           : MPI_Irecv(data, bytes, MPI_BYTE, message.peer, tag, world_, &request);
      if (code != MPI_SUCCESS) return MpiError(message.is_send ? "MPI_Isend" : "MPI_Irecv", code);
      pending.requests.push_back(request);
      pending.peers.push_back(message.peer);
      pending.bytes.push_back(message.is_send ? -1 : bytes);
    }
  }
  return OkStatus();
}

StatusOr<bool> MpiRuntime::Test(Pending& pending) {
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  ReceiveAbortNotice();
  bool all = true;
  for (size_t i = 0; i < pending.requests.size(); ++i) {
    if (pending.requests[i] == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Status status = {};
    const int code = MPI_Test(&pending.requests[i], &done, &status);
    int bytes = pending.bytes[i];
    if (code == MPI_SUCCESS && done != 0 && bytes >= 0) MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (code == MPI_ERR_TRUNCATE || bytes != pending.bytes[i]) {
      return MakeStatus(StatusCode::kUnavailable,
                        "rank {} sends another number of bytes than the {} that rank {} expects; "
                        "the kinds and the sizes of the calls must be equal",
                        pending.peers[i],
                        pending.bytes[i],
                        rank_);
    }
    if (code != MPI_SUCCESS) {
      return Annotate(MpiError("MPI_Test", code), fmt::format("rank {}", pending.peers[i]));
    }
    all = all && done != 0;
  }
  return all;
}

void MpiRuntime::ReceiveAbortNotice() {
  if (notice_ == MPI_REQUEST_NULL) return;
  int done = 0;
  if (MPI_Test(&notice_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) return;
  incoming_.message.back() = '\0';
  SetAborted(incoming_.rank, incoming_.message.data());
}

void MpiRuntime::SetAborted(int rank, std::string_view message) {
  if (aborted_) return;
  aborted_ = true;
  abort_.rank = rank;
  message = message.substr(0, abort_.message.size() - 1);
  std::copy(message.begin(), message.end(), abort_.message.begin());
}

void MpiRuntime::Abort(int rank, std::string_view message) {
  const std::lock_guard lock(mutex_);
  if (aborted_ || closed_) return;
  SetAborted(rank, message);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&abort_, sizeof(abort_), MPI_BYTE, peer, kAbortTag, world_, &request);
    sent_notices_.push_back(request);
  }
}

Status MpiRuntime::abort_status() {
  const std::lock_guard lock(mutex_);
  if (!closed_) ReceiveAbortNotice();
  if (!aborted_) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "the group is aborted because of rank {}: {}",
                    abort_.rank,
                    abort_.message.data());
}

void MpiRuntime::Abandon(Pending& pending, const std::shared_ptr<MpiBuffers>& buffers) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  for (size_t i = 0; i < pending.requests.size(); ++i) {
    if (pending.requests[i] == MPI_REQUEST_NULL) continue;
    if (pending.bytes[i] >= 0) MPI_Cancel(&pending.requests[i]);
    abandoned_requests_.push_back(pending.requests[i]);
  }
  abandoned_.push_back(buffers);
}

Status MpiRuntime::TooLate(const Pending& pending, const MpiWait& wait) {
  int late = rank_;
  for (size_t i = 0; i < pending.requests.size(); ++i) {
    if (pending.requests[i] != MPI_REQUEST_NULL) late = pending.peers[i];
  }
  const std::string message =
      fmt::format("rank {} did not come within {} ms", late, ToMillis(wait.limit));
  if (wait.abortable) Abort(late, message);
  return MakeStatus(StatusCode::kDeadlineExceeded, "{}", message);
}

}  // namespace baton

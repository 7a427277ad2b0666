#include "common/collective/mpi/mpi_runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace baton {
namespace {

constexpr int kAbortTag = 0;
constexpr int kCloseTag = 1;
constexpr size_t kMaxMessageBytes = size_t{64} << 20;
constexpr Duration kCloseLimit = std::chrono::seconds(2);
constexpr Duration kShortestSleep = std::chrono::microseconds(20);
constexpr Duration kLongestSleep = std::chrono::microseconds(500);
// Before a rank sleeps, it lets the other ranks of its processor run this many times.
constexpr int kYields = 10;

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
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(runtime->world_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  MPI_Comm_size(here, &runtime->ranks_here_);
  MPI_Comm_free(&here);
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
  if (!AllAreClosing()) return;
  const std::lock_guard lock(mutex_);
  if (notice_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&notice_);
    MPI_Wait(&notice_, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
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
  if (aborted_) return;
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
  ReceiveAbortNotice();
  if (!aborted_) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "the group is aborted because of rank {}: {}",
                    abort_.rank,
                    abort_.message.data());
}

void MpiRuntime::Abandon(Pending& pending, const std::shared_ptr<MpiBuffers>& buffers) {
  const std::lock_guard lock(mutex_);
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

// Linked only into programs that use gRPC and are built with ThreadSanitizer. The distribution's
// gRPC and Abseil are not instrumented: ThreadSanitizer sees neither their futexes nor their
// atomics, and would report accesses as races that the libraries do order. The functions below
// replace the libraries' functions of the same name (the dynamic linker searches the program
// first), call the originals, and annotate the happens-before edges that the libraries guarantee:
//  - accesses before the unlock of an Abseil mutex happen before its next lock;
//  - accesses before a batch of operations starts happen before the batch's callback;
//  - the callbacks of a server's call happen before the call's end, and that before the server's
//    shutdown.
// No race of Baton's own is hidden, because these edges hold in every run.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <typeinfo>

#include <absl/synchronization/mutex.h>
#include <grpc/grpc.h>
#include <grpcpp/server.h>
#include <grpcpp/support/callback_common.h>
#include <grpcpp/support/server_callback.h>

#include "common/base/check.h"

// ThreadSanitizer calls this function when a program starts. The option makes it ignore accesses to
// memory and sockets inside the libraries, but not those of Baton and of the libraries' templates.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}

namespace {

// The function `symbol` of the libraries, which this file replaces.
template <class Function>
Function* Next(const std::string& symbol) {
  void* const next = ::dlsym(RTLD_NEXT, symbol.c_str());
  BATON_CHECK(next != nullptr, "no library has the function {}", symbol);
  return reinterpret_cast<Function*>(next);
}

// The libraries' method of Class; `method` is mangled, as in "4LockEv" (Itanium C++ ABI, 5.1). The
// mangled class comes from typeid, because Abseil's namespace differs between distributions.
template <class Class, class Result = void, class... Args>
auto NextOf(const std::string& method) {
  std::string name = typeid(Class).name();
  name.pop_back();
  return Next<Result(Class*, Args...)>("_Z" + name + method);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto next = NextOf<Mutex>("4LockEv");
  next(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static const auto next = NextOf<Mutex, bool>("7TryLockEv");
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static const auto next = NextOf<Mutex>("6UnlockEv");
  __tsan_release(this);
  next(this);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next = NextOf<CondVar, void, Mutex*>("4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next =
      NextOf<CondVar, bool, Mutex*, Duration>("15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next =
      NextOf<CondVar, bool, Mutex*, Time>("16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

namespace {

// Gives access to private members of gRPC's classes: an explicit instantiation may name them.
template <class Key, typename Key::Member kMember>
struct Reveal {
  friend typename Key::Member MemberOf(Key) { return kMember; }
};
using Functor = grpc_completion_queue_functor;
using grpc::internal::CallbackWithStatusTag;
using grpc::internal::CallbackWithSuccessTag;
using grpc::internal::ServerCallbackCall;

// The functions that CallbackWithSuccessTag and CallbackWithStatusTag run when their batch has
// ended.
struct RunSuccess {
  using Member = void (*)(Functor*, int);
  friend Member MemberOf(RunSuccess);
};
template struct Reveal<RunSuccess, &CallbackWithSuccessTag::StaticRun>;
struct RunStatus {
  using Member = void (*)(Functor*, int);
  friend Member MemberOf(RunStatus);
};
template struct Reveal<RunStatus, &CallbackWithStatusTag::StaticRun>;

// The callback of a CallbackWithSuccessTag.
struct SuccessCallback {
  using Member = std::function<void(bool)> CallbackWithSuccessTag::*;
  friend Member MemberOf(SuccessCallback);
};
template struct Reveal<SuccessCallback, &CallbackWithSuccessTag::func_>;

// The number of callbacks of a call that have not ended.
struct CallbacksOutstanding {
  using Member = std::atomic_int ServerCallbackCall::*;
  friend Member MemberOf(CallbacksOutstanding);
};
template struct Reveal<CallbacksOutstanding, &ServerCallbackCall::callbacks_outstanding_>;

// The success tags of all calls. Those of a server's call are members of its ServerCallbackCall.
class SuccessTags {
 public:
  void Add(const Functor* tag) {
    std::lock_guard lock(mutex_);
    tags_.insert(reinterpret_cast<uintptr_t>(tag));
  }

  // Acquires what the tags of `call` released, and forgets the tags.
  void AcquireAllOf(const ServerCallbackCall* call) {
    constexpr uintptr_t kCallBytes = 4096;  // more than any implementation of the class has
    const auto begin = reinterpret_cast<uintptr_t>(call);
    std::lock_guard lock(mutex_);
    const auto first = tags_.lower_bound(begin);
    const auto last = tags_.lower_bound(begin + kCallBytes);
    for (auto tag = first; tag != last; ++tag) __tsan_acquire(reinterpret_cast<void*>(*tag));
    tags_.erase(first, last);
  }

 private:
  std::mutex mutex_;
  std::set<uintptr_t> tags_;
};

SuccessTags& AllSuccessTags() {
  static auto* const tags = new SuccessTags();  // calls may end after main
  return *tags;
}

template <class Run>
void AcquireAndRun(Functor* tag, int ok) {
  __tsan_acquire(tag);
  MemberOf(Run())(tag, ok);
}

// As CallbackWithSuccessTag::Run. The operations are finished before the callback, which may be the
// one that lets another thread end the call.
template <>
void AcquireAndRun<RunSuccess>(Functor* functor, int ok) {
  __tsan_acquire(functor);
  auto* const tag = static_cast<CallbackWithSuccessTag*>(functor);
  void* ops = tag->ops();
  bool succeeded = ok != 0;
  const bool wanted = tag->ops()->FinalizeResult(&ops, &succeeded);
  __tsan_release(functor);
  if (wanted) grpc::internal::CatchingCallback(tag->*MemberOf(SuccessCallback()), succeeded);
}

// If `tag` runs Run's function, makes it acquire first.
template <class Run>
void AcquireFirst(Functor* tag) {
  if (tag->functor_run == MemberOf(Run())) tag->functor_run = AcquireAndRun<Run>;
}

}  // namespace

namespace grpc {

void internal::ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static const auto next = NextOf<ServerCallbackCall, void, bool>("14ScheduleOnDoneEb");
  // The last callback may have been counted by gRPC's code, which is not instrumented. This load
  // makes its end visible to ThreadSanitizer.
  (this->*MemberOf(CallbacksOutstanding())).load(std::memory_order_acquire);
  AllSuccessTags().AcquireAllOf(this);
  next(this, inline_ondone);
}

void Server::UnrefWithPossibleNotify() {
  static const auto next = NextOf<Server>("23UnrefWithPossibleNotifyEv");
  __tsan_release(this);
  next(this);
}

void Server::ShutdownInternal(gpr_timespec deadline) {
  static const auto next = NextOf<Server, void, gpr_timespec>("16ShutdownInternalE12gpr_timespec");
  next(this, deadline);
  __tsan_acquire(this);
}

}  // namespace grpc

extern "C" grpc_call_error grpc_call_start_batch(
    grpc_call* call, const grpc_op* ops, size_t count, void* tag, void* reserved) {
  static const auto next = Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  if (tag != nullptr) {
    // Not every tag is a functor, but every tag points to an object that begins with a pointer.
    const auto functor = static_cast<Functor*>(tag);
    AcquireFirst<RunSuccess>(functor);
    if (functor->functor_run == AcquireAndRun<RunSuccess>) AllSuccessTags().Add(functor);
    AcquireFirst<RunStatus>(functor);
    __tsan_release(tag);
  }
  return next(call, ops, count, tag, reserved);
}

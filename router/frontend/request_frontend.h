#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/frontend/caller_limits.h"
#include "router/frontend/fair_threads.h"
#include "router/frontend/request_check.h"
#include "router/generation.h"
#include "router/loop/core_loop.h"
#include "router/router_probe.h"
#include "router/text/model_text.h"

namespace baton::router {

struct FrontendOptions {
  uint64_t tag = 0;  // the upper 24 bits of all request ids of this router
  uint64_t hash_secret = 0;
  Duration default_timeout = std::chrono::seconds(600);
  GenerationDefaults sampling;   // for parameters that a request does not set
  size_t tokenizer_threads = 2;  // see RouterConfig
  // Recognises clients by their keys, and outlives the frontend; null: clients need no key.
  Authenticator* callers = nullptr;
  std::vector<std::string> aliases;  // further names of the model
};

// The API's handle of a running generation.
class Generation {
 public:
  virtual ~Generation() = default;
  // Renders the template, tokenises, and submits the request to the core. Called once, on a thread
  // of PostTokenizing.
  virtual void Prepare() = 0;
  // Cancels the generation, for example because the client disconnected. OnEnd is still called,
  // with `why` unless the generation ended before. Thread-safe; may be called more than once.
  virtual void Cancel(const Status& why) = 0;
};

// The path from a client's request to its text, shared by gRPC and HTTP: check → template and
// tokenise, once → hash, once → core → detokenise, stop strings, logprobs → observer. Thread-safe.
class RequestFrontend final {
 public:
  // All outlive the frontend.
  RequestFrontend(const FrontendOptions& options,
                  const ModelText& text,
                  CoreLoop& core,
                  const Clock& clock,
                  RouterProbe& probe);

  // Refuses new requests with Unavailable from now on. Blocks until the running requests have
  // ended, or for `limit`; returns whether all have ended.
  bool Drain(Duration limit);
  // Ends all running requests, then the tokenizer threads. Afterwards the frontend does not use the
  // core any more.
  void Stop();

  // Starts a generation without blocking. Errors are reported to the observer. Returns null when
  // the router is draining or the client's key has reached a limit.
  std::shared_ptr<Generation> Start(GenerationRequest request,
                                    std::shared_ptr<GenerationObserver> observer);
  // As Start, for a caller that calls Generation::Prepare itself.
  std::shared_ptr<Generation> Admit(GenerationRequest request,
                                    std::shared_ptr<GenerationObserver> observer);

  // Counts a request that its API refused, so that Start was not called.
  void CountRefused(const std::string& client, const Status& why) {
    probe_.OnRejected(why);
    caller_limits_.CountRefused(client, why);
  }

  const ModelText& text() const { return text_; }
  const CallerLimits& callers() const { return caller_limits_; }
  // The most tokens that a prompt and its output may have together.
  int32_t context_length() const;
  // Of the weights that the workers have, "fp_…"; empty while no worker has joined.
  std::string fingerprint() const;
  // The model's name, then its aliases.
  std::vector<std::string> model_names() const;
  // The name that an answer states for a request that asks for `model`.
  const std::string& NameFor(const std::string& model) const {
    return model.empty() ? text_.name() : model;
  }
  // NotFound when `model` is not a name of the served model. An empty name means the served model.
  Status CheckModel(const std::string& model) const;
  // Queues `work`, a job of `client` with `bytes` bytes of input, for a tokenizer thread
  // (FairThreads). False after Stop; the job is then dropped.
  bool PostTokenizing(const std::string& client, size_t bytes, std::function<void()> work);

 private:
  class Running;

  void Ended();
  Status CheckTools(const GenerationRequest& request) const;
  Status SetLengths(const GenerationRequest& request, RequestSpec& spec) const;
  StatusOr<std::shared_ptr<RequestSpec>> MakeSpec(const GenerationRequest& request,
                                                  RequestId id,
                                                  Time arrival,
                                                  const CallerTicket* ticket,
                                                  std::function<bool()> cancelled) const;

  const FrontendOptions options_;
  const ModelText& text_;
  CoreLoop& core_;
  const Clock& clock_;
  RouterProbe& probe_;
  const RequestLimits limits_;
  CallerLimits caller_limits_;
  std::atomic<uint64_t> requests_{0};

  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t running_ = 0;
  bool draining_ = false;

  FairThreads tokenizers_;
};

}  // namespace baton::router

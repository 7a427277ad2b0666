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
#include "router/core_loop.h"
#include "router/fair_threads.h"
#include "router/generation.h"
#include "router/model_text.h"
#include "router/request_check.h"
#include "router/router_probe.h"

namespace baton::router {

struct FrontendOptions {
  uint64_t tag = 0;  // this router's range of request ids: the upper 24 bits
  uint64_t hash_secret = 0;
  Duration default_timeout = std::chrono::seconds(600);
  GenerationDefaults sampling;   // of requests that do not say
  size_t tokenizer_threads = 2;  // see RouterConfig
};

// A generation under way, in the hands of its API.
class Generation {
 public:
  virtual ~Generation() = default;
  // The client left. OnEnd still comes, with Cancelled. Thread-safe; may be called more than once.
  virtual void Cancel(const Status& why) = 0;
};

// The one way from a client's request to its text, shared by gRPC and HTTP: check → template and
// tokenise, once → hash, once → core → detokenise, stop strings, logprobs → observer. Thread-safe.
class RequestFrontend final {
 public:
  // All outlive the frontend.
  RequestFrontend(const FrontendOptions& options,
                  const ModelText& text,
                  CoreLoop& core,
                  const Clock& clock,
                  RouterProbe& probe);

  // Takes no more requests: they get Unavailable. Returns when those running have ended, or after
  // `limit`; true if all have.
  bool Drain(Duration limit);
  // Ends all that run, then the tokenizer threads: the frontend uses the core no more.
  void Stop();

  // Never blocks; errors come through the observer. Null when the router is draining.
  std::shared_ptr<Generation> Start(GenerationRequest request,
                                    std::shared_ptr<GenerationObserver> observer);

  // Counts a request that its API refused, so that it did not come to Start.
  void CountRefused(const Status& why) { probe_.OnRejected(why); }

  const ModelText& text() const { return text_; }
  // Tokens that prompt and output may have together.
  int32_t context_length() const;
  // NotFound when `model` is not the one that is served; empty is.
  Status CheckModel(const std::string& model) const;
  // Runs `work`, on so many bytes of input, on a tokenizer thread, in a turn of `client`.
  void PostTokenizing(const std::string& client, size_t bytes, std::function<void()> work);

 private:
  class Running;

  void Ended();
  Status SetLengths(const GenerationRequest& request, RequestSpec& spec) const;
  StatusOr<std::shared_ptr<RequestSpec>> MakeSpec(const GenerationRequest& request,
                                                  RequestId id,
                                                  Time arrival,
                                                  std::function<bool()> cancelled) const;

  const FrontendOptions options_;
  const ModelText& text_;
  CoreLoop& core_;
  const Clock& clock_;
  RouterProbe& probe_;
  const RequestLimits limits_;
  std::atomic<uint64_t> requests_{0};

  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t running_ = 0;
  bool draining_ = false;

  std::unique_ptr<FairThreads> tokenizers_;
};

}  // namespace baton::router

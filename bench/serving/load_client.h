#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/client_context.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "proto/generation.grpc.pb.h"

namespace baton {

// What a client observed of one request.
struct RequestTrace {
  Time sent{};
  std::vector<Time> tokens;  // arrival time of each token
  std::vector<int32_t> ids;
  v1::Timings timings;
  Status status;

  double FirstMs() const { return tokens.empty() ? 0 : ToMillis(tokens[0] - sent); }
  // Time in ms between token `index` (at least 1) and token `index` - 1.
  double GapMs(size_t index) const { return ToMillis(tokens[index] - tokens[index - 1]); }
};

// A request in flight. gRPC's threads record when its tokens arrive. Thread-safe.
class LoadCall final : private grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  // Blocks until `count` tokens have arrived or the request has ended.
  void AwaitTokens(size_t count);
  // Blocks until the request has ended; returns its complete trace.
  const RequestTrace& Await();
  // The trace so far.
  RequestTrace Snapshot();
  void Cancel() { context_.TryCancel(); }

 private:
  friend class LoadClient;
  LoadCall() = default;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  std::mutex mutex_;
  std::condition_variable changed_;
  RequestTrace trace_;
  bool ended_ = false;
};

// Sends requests for load tests to a router: prompts and answers are token ids, decoding is greedy,
// and every answer has exactly the requested length. The client owns its calls, because a gRPC
// thread must not be the last owner of one. Thread-safe.
class LoadClient final {
 public:
  LoadClient(const std::string& address, int32_t vocabulary);
  // Cancels the calls that are still in flight and waits until they have ended.
  ~LoadClient();

  // Sends a prompt of `prompt` tokens that differs from every other prompt of this process. The
  // call lives as long as the client.
  LoadCall* Send(int32_t prompt, int32_t output);
  // Sends the given prompt.
  LoadCall* Send(const std::vector<int32_t>& prompt, int32_t output);

 private:
  const int32_t vocabulary_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<LoadCall>> calls_;
};

// `count` random token ids below `vocabulary`, determined by `seed`.
std::vector<int32_t> RandomPrompt(uint64_t seed, int32_t count, int32_t vocabulary);

}  // namespace baton

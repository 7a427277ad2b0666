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

// What a client saw of one request.
struct RequestTrace {
  Time sent{};
  std::vector<Time> tokens;  // when each came
  std::vector<int32_t> ids;
  v1::Timings timings;
  Status status;

  double FirstMs() const { return tokens.empty() ? 0 : ToMillis(tokens[0] - sent); }
  // Between token `index` (from 1) and the one before it.
  double GapMs(size_t index) const { return ToMillis(tokens[index] - tokens[index - 1]); }
};

// A request under way. gRPC's threads note when its tokens come; thread-safe.
class LoadCall final : private grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  // Blocks until so many tokens came, or the request ended.
  void AwaitTokens(size_t count);
  // Blocks until the request ended; what was seen of it.
  const RequestTrace& Await();
  // What was seen until now.
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

// Sends requests to a router as a load test wants them: prompts and answers are token ids, chosen
// greedily, of an exact number. Keeps its calls: gRPC's threads must not be the last to hold them.
// Thread-safe.
class LoadClient final {
 public:
  LoadClient(const std::string& address, int32_t vocabulary);
  // Cancels the calls that are under way.
  ~LoadClient();

  // Sends a prompt of `prompt` tokens that no other call of this process sends. The call lives as
  // long as the client.
  LoadCall* Send(int32_t prompt, int32_t output);
  // The same with a prompt that is given.
  LoadCall* Send(const std::vector<int32_t>& prompt, int32_t output);

 private:
  const int32_t vocabulary_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<LoadCall>> calls_;
};

// `count` token ids below `vocabulary`, random by `seed`.
std::vector<int32_t> RandomPrompt(uint64_t seed, int32_t count, int32_t vocabulary);

}  // namespace baton

#include "bench/serving/load_client.h"

#include <atomic>
#include <random>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"

namespace baton {
namespace {

constexpr auto kLimit = std::chrono::seconds(300);

Time Now() {
  return SteadyClock().Now();
}

}  // namespace

void LoadCall::AwaitTokens(size_t count) {
  std::unique_lock lock(mutex_);
  const bool came =
      changed_.wait_for(lock, kLimit, [&] { return ended_ || trace_.tokens.size() >= count; });
  BATON_CHECK(came, "{} of {} tokens arrived before the time limit", trace_.tokens.size(), count);
}

const RequestTrace& LoadCall::Await() {
  std::unique_lock lock(mutex_);
  BATON_CHECK(changed_.wait_for(lock, kLimit, [&] { return ended_; }),
              "a request did not end within the time limit");
  return trace_;
}

RequestTrace LoadCall::Snapshot() {
  std::lock_guard lock(mutex_);
  return trace_;
}

void LoadCall::OnReadDone(bool ok) {
  if (!ok) return;
  const Time now = Now();
  {
    std::lock_guard lock(mutex_);
    for (const int32_t id : response_.token_ids()) {
      trace_.tokens.push_back(now);
      trace_.ids.push_back(id);
    }
    if (response_.has_timings()) trace_.timings = response_.timings();
    if (response_.has_error()) {
      trace_.status =
          Status(static_cast<StatusCode>(response_.error().code()), response_.error().message());
    }
    changed_.notify_all();
  }
  StartRead(&response_);
}

void LoadCall::OnDone(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  if (!status.ok()) trace_.status = FromGrpc(status);
  ended_ = true;
  changed_.notify_all();
}

LoadClient::LoadClient(const std::string& address, int32_t vocabulary)
    : vocabulary_(vocabulary), stub_(v1::Generation::NewStub(MakeChannel(address))) {}

LoadClient::~LoadClient() {
  for (const std::unique_ptr<LoadCall>& call : calls_) {
    call->Cancel();
    call->Await();
  }
}

LoadCall* LoadClient::Send(int32_t prompt, int32_t output) {
  static std::atomic<uint64_t> sent{0};
  return Send(RandomPrompt(++sent, prompt, vocabulary_), output);
}

LoadCall* LoadClient::Send(const std::vector<int32_t>& prompt, int32_t output) {
  std::unique_ptr<LoadCall> owned(new LoadCall());
  LoadCall* const call = owned.get();
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(owned));
  }
  v1::GenerateRequest& request = call->request_;
  request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  request.set_max_tokens(output);
  request.set_ignore_eos(true);
  request.set_echo_tokens(true);
  request.mutable_sampling()->set_temperature(0);
  call->context_.set_deadline(std::chrono::system_clock::now() + kLimit);
  call->trace_.sent = Now();
  stub_->async()->Generate(&call->context_, &request, call);
  call->StartRead(&call->response_);
  call->StartCall();
  return call;
}

std::vector<int32_t> RandomPrompt(uint64_t seed, int32_t count, int32_t vocabulary) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> id(0, vocabulary - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(count));
  for (int32_t& token : prompt) token = id(random);
  return prompt;
}

}  // namespace baton

#include "tests/fakes/fake_worker.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "common/kvcache/block_hash.h"
#include "common/rpc/channel.h"

namespace baton {
namespace {

namespace pb = worker::v1;

constexpr auto kLong = std::chrono::seconds(60);
constexpr int32_t kCachedTokens = 3;  // of each prompt

}  // namespace

FakeWorker::FakeWorker(const Options& options) {
  std::shared_ptr<pb::WorkerLink::Stub> stub = pb::WorkerLink::NewStub(MakeChannel(options.router));
  StreamHandler<pb::ToWorker> handler;
  handler.on_message = [this](const pb::ToWorker& message) {
    OnMessage(message);
    return OkStatus();
  };
  handler.on_closed = [this](const Status& status) {
    std::lock_guard lock(mutex_);
    closed_ = status;
    changed_.notify_all();
  };
  stream_ = Stream::Create(
      [stub](grpc::ClientContext* call, grpc::ClientBidiReactor<pb::ToRouter, pb::ToWorker>* end) {
        stub->async()->Open(call, end);
      },
      std::move(handler),
      100'000,
      options.proofs);
  Stream::Dial(stream_);
  pb::ToRouter hello;
  pb::Join& join = *hello.mutable_join();
  const BootId boot(RandomId());
  join.set_version(options.version);
  join.set_worker_id(options.id);
  join.set_boot_id(boot.value());
  join.set_can_prefill(options.prefill);
  join.set_can_decode(options.decode);
  join.set_model("fake");
  join.set_kv_layout("fake");
  if (options.decode) join.set_kv_address("127.0.0.1:1");
  join.set_deterministic(true);
  join.set_block_tokens(16);
  join.set_blocks(options.blocks);
  join.set_max_sequences(256);
  join.set_context_length(options.context_length);
  join.set_vocabulary(options.vocabulary);
  join.set_max_step_tokens(2048);
  join.set_fingerprint_high(options.model.fingerprint.high);
  join.set_fingerprint_low(options.model.fingerprint.low);
  join.set_shape_high(options.model.shape.high);
  join.set_shape_low(options.model.shape.low);
  join.set_tokenizer_high(options.model.tokenizer.high);
  join.set_tokenizer_low(options.model.tokenizer.low);
  const Hash128 probe = SecretProbe(options.hash_secret, boot);
  join.set_secret_probe_high(probe.high);
  join.set_secret_probe_low(probe.low);
  Send(std::move(hello));
  Await("welcome", [this] { return welcome_ || closed_.has_value(); });
}

void FakeWorker::Leave() {
  stream_->Close(OkStatus());
  EXPECT_TRUE(stream_->AwaitClosed(kLong));
}

void FakeWorker::OnMessage(const pb::ToWorker& message) {
  std::lock_guard lock(mutex_);
  welcome_ = welcome_ || message.has_welcome();
  if (message.clear_cache()) ++cleared_;
  if (message.has_drain()) drain_ = message.drain();
  dispatches_.insert(dispatches_.end(), message.dispatches().begin(), message.dispatches().end());
  cancels_.insert(cancels_.end(), message.cancels().begin(), message.cancels().end());
  changed_.notify_all();
}

void FakeWorker::Await(const std::string& what, const std::function<bool()>& condition) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kLong, condition))
    throw std::runtime_error("timed out waiting for: " + what);
}

pb::Dispatch FakeWorker::AwaitDispatch(size_t number) {
  Await("a dispatch", [&] { return dispatches_.size() > number; });
  std::lock_guard lock(mutex_);
  return dispatches_[number];
}

size_t FakeWorker::dispatches() {
  std::lock_guard lock(mutex_);
  return dispatches_.size();
}

const pb::Cancel* FakeWorker::FindCancel(const pb::Dispatch& dispatch, int32_t sample) const {
  const auto found = std::ranges::find_if(cancels_, [&](const pb::Cancel& cancel) {
    return cancel.request_id() == dispatch.request_id() && cancel.epoch() == dispatch.epoch() &&
           (cancel.has_sample() ? cancel.sample() : kAll) == sample;
  });
  return found == cancels_.end() ? nullptr : &*found;
}

pb::Cancel FakeWorker::AwaitCancel(const pb::Dispatch& dispatch, int32_t sample) {
  Await("a cancel", [&] { return FindCancel(dispatch, sample) != nullptr; });
  std::lock_guard lock(mutex_);
  return *FindCancel(dispatch, sample);
}

bool FakeWorker::Cancelled(const pb::Dispatch& dispatch, int32_t sample) {
  std::lock_guard lock(mutex_);
  return FindCancel(dispatch, sample) != nullptr;
}

pb::DrainCommand FakeWorker::AwaitDrain() {
  Await("a drain", [this] { return drain_.has_value(); });
  std::lock_guard lock(mutex_);
  return drain_.value_or(pb::DrainCommand());
}

int FakeWorker::caches_cleared() {
  std::lock_guard lock(mutex_);
  return cleared_;
}

bool FakeWorker::is_member() {
  std::lock_guard lock(mutex_);
  return welcome_ && !closed_.has_value();
}

Status FakeWorker::AwaitRefusal() {
  Await("a refusal", [this] { return closed_.has_value(); });
  std::lock_guard lock(mutex_);
  EXPECT_FALSE(welcome_);
  return closed_.value_or(OkStatus());
}

void FakeWorker::Say(const pb::Dispatch& dispatch,
                     int32_t sample,
                     int32_t first,
                     const std::string& text,
                     FinishReason finish,
                     int32_t top) {
  pb::ToRouter message;
  for (size_t i = 0; i < text.size(); ++i) {
    pb::Token& token = *message.add_tokens();
    token.set_request_id(dispatch.request_id());
    token.set_epoch(dispatch.epoch());
    token.set_sample(sample);
    token.set_index(first + static_cast<int32_t>(i));
    token.set_token(static_cast<uint8_t>(text[i]));
    token.set_logprob(-0.5f);
    if (token.index() == 0) token.set_cached_tokens(kCachedTokens);
    for (int32_t k = 0; k < top; ++k) {
      token.add_top()->set_token(k);
      token.mutable_top(k)->set_logprob(-1.0f);
    }
    if (i + 1 == text.size()) token.set_finish(static_cast<int>(finish));
  }
  Send(std::move(message));
}

void FakeWorker::Finish(const pb::Dispatch& dispatch) {
  pb::ToRouter message;
  pb::Finished& finished = *message.add_finished();
  finished.set_request_id(dispatch.request_id());
  finished.set_epoch(dispatch.epoch());
  finished.set_queue_us(1000);
  finished.set_prefill_us(2000);
  finished.set_cached_tokens(kCachedTokens);
  Send(std::move(message));
}

}  // namespace baton

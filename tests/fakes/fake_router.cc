#include "tests/fakes/fake_router.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>

namespace baton {
namespace {

namespace pb = worker::v1;

}  // namespace

std::vector<TokenId> FakeRouter::WorkerReports::Tokens(int32_t sample) const {
  std::vector<TokenId> tokens;
  const auto found = samples.find(sample);
  if (found == samples.end()) return tokens;
  for (const pb::Token& token : found->second) tokens.push_back(token.token());
  return tokens;
}

pb::Failed FakeRouter::WorkerReports::Failure() const {
  EXPECT_TRUE(failed.has_value()) << "the request should have failed; it " << Ending();
  return failed.value_or(pb::Failed());
}

std::string FakeRouter::WorkerReports::Ending() const {
  if (failed.has_value()) return "failed: " + failed->message();
  return finished.has_value() ? "finished" : "has not ended";
}

bool FakeRouter::WorkerReports::over() const {
  return ended() || std::any_of(handoffs.begin(), handoffs.end(), [](const pb::Handoff& handoff) {
           return handoff.outcome() == pb::Handoff::FAILED ||
                  handoff.outcome() == pb::Handoff::NOT_NEEDED;
         });
}

FakeRouter::FakeRouter(Duration limit) : limit_(limit) {
  grpc::Service* services[] = {this};
  server_ = RpcServer::Start("127.0.0.1:0", services).value();
}

FakeRouter::~FakeRouter() {
  server_->Shutdown(Duration::zero());
}

grpc::ServerBidiReactor<pb::ToRouter, pb::ToWorker>* FakeRouter::Open(
    grpc::CallbackServerContext* context) {
  auto name = std::make_shared<std::string>();
  auto stream = std::make_shared<std::shared_ptr<Stream>>();
  StreamHandler<pb::ToRouter> handler;
  handler.on_message = [this, name, stream](const pb::ToRouter& message) {
    return OnMessage(name, stream, message);
  };
  handler.on_closed = [this, name, stream](const Status&) {
    std::lock_guard lock(mutex_);
    const auto member = members_.find(*name);
    if (member != members_.end() && member->second.stream == *stream) {
      member->second.stream = nullptr;
      member->second.heartbeat.Clear();
    }
    stream->reset();
    changed_.notify_all();
  };
  *stream = Stream::Accept(context, std::move(handler), 100000);
  return stream->get();
}

Status FakeRouter::OnMessage(const std::shared_ptr<std::string>& name,
                             const std::shared_ptr<std::shared_ptr<Stream>>& stream,
                             const pb::ToRouter& message) {
  std::lock_guard lock(mutex_);
  if (message.has_join()) {
    if (look_at_join_ != nullptr) look_at_join_(message.join());
    BATON_RETURN_IF_ERROR(refusal_);
    *name = message.join().worker_id();
    members_[*name].join = message.join();
    members_[*name].stream = *stream;
    pb::ToWorker welcome;
    welcome.mutable_welcome()->set_router_id("fake");
    welcome.mutable_welcome()->set_heartbeat_ms(20);
    (*stream)->Send(std::move(welcome));
  }
  Member& member = members_[*name];
  if (message.has_heartbeat()) member.heartbeat = message.heartbeat();
  if (message.has_drain()) member.draining = true;
  for (const pb::Token& token : message.tokens()) {
    WorkerReports& heard = member.heard[{token.request_id(), token.epoch()}];
    EXPECT_FALSE(heard.ended()) << "a token after the end of request " << token.request_id();
    heard.samples[token.sample()].push_back(token);
  }
  for (const pb::Handoff& handoff : message.handoffs()) {
    member.heard[{handoff.request_id(), handoff.epoch()}].handoffs.push_back(handoff);
  }
  for (const pb::Finished& finished : message.finished()) {
    WorkerReports& heard = member.heard[{finished.request_id(), finished.epoch()}];
    heard.finished = finished;
    for (const pb::Token& token : message.tokens()) {
      if (token.request_id() == finished.request_id()) heard.finished_with_token = true;
    }
  }
  for (const pb::Failed& failed : message.failed()) {
    const WorkerReports& heard = member.heard[{failed.request_id(), failed.epoch()}];
    EXPECT_FALSE(heard.ended()) << "a second end of request " << failed.request_id();
    member.heard[{failed.request_id(), failed.epoch()}].failed = failed;
  }
  changed_.notify_all();
  return OkStatus();
}

void FakeRouter::RefuseJoins(const Status& why) {
  std::lock_guard lock(mutex_);
  refusal_ = why;
}

void FakeRouter::OnJoin(std::function<void(const pb::Join&)> look) {
  std::lock_guard lock(mutex_);
  look_at_join_ = std::move(look);
}

void FakeRouter::AwaitLocked(std::unique_lock<std::mutex>& lock,
                             const std::string& what,
                             const std::function<bool()>& condition) {
  if (!changed_.wait_for(lock, limit_, condition))
    throw std::runtime_error("timed out waiting for: " + what);
}

pb::Join FakeRouter::AwaitJoin(const std::string& worker) {
  std::unique_lock lock(mutex_);
  AwaitLocked(lock, "join of " + worker, [&] {
    const Member& member = members_[worker];
    return member.stream != nullptr && member.heartbeat.blocks_total() > 0;
  });
  return members_[worker].join;
}

void FakeRouter::AwaitLeft(const std::string& worker) {
  std::unique_lock lock(mutex_);
  AwaitLocked(lock, worker + " leaving", [&] { return members_[worker].stream == nullptr; });
}

void FakeRouter::Send(const std::string& worker, pb::ToWorker message) {
  std::lock_guard lock(mutex_);
  Member& member = members_[worker];
  if (member.stream == nullptr) throw std::runtime_error(worker + " has not joined");
  EXPECT_TRUE(member.stream->Send(std::move(message)));
}

void FakeRouter::Drop(const std::string& worker, const Status& why) {
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(mutex_);
    stream = std::exchange(members_[worker].stream, nullptr);
    members_[worker].heartbeat.Clear();
  }
  if (stream != nullptr) stream->Close(why);
}

FakeRouter::WorkerReports FakeRouter::Await(const std::string& worker,
                                            uint64_t request,
                                            uint32_t epoch,
                                            const std::function<bool(const WorkerReports&)>& done) {
  std::unique_lock lock(mutex_);
  AwaitLocked(
      lock,
      fmt::format("the expected reports of {} about request {} epoch {}", worker, request, epoch),
      [&] {
        return done(members_[worker].heard[{request, epoch}]);
      });
  return members_[worker].heard[{request, epoch}];
}

FakeRouter::WorkerReports FakeRouter::AwaitEnd(const std::string& worker,
                                               uint64_t request,
                                               uint32_t epoch) {
  return Await(worker, request, epoch, [](const WorkerReports& heard) { return heard.ended(); });
}

FakeRouter::WorkerReports FakeRouter::Get(const std::string& worker,
                                          uint64_t request,
                                          uint32_t epoch) {
  return Await(worker, request, epoch, [](const WorkerReports&) { return true; });
}

pb::Heartbeat FakeRouter::LastHeartbeat(const std::string& worker) {
  std::lock_guard lock(mutex_);
  return members_[worker].heartbeat;
}

void FakeRouter::AwaitHeartbeat(const std::string& worker,
                                const std::function<bool(const pb::Heartbeat&)>& fits) {
  std::unique_lock lock(mutex_);
  AwaitLocked(lock, "a heartbeat of " + worker, [&] { return fits(members_[worker].heartbeat); });
}

bool FakeRouter::Draining(const std::string& worker) {
  std::lock_guard lock(mutex_);
  return members_[worker].draining;
}

pb::Dispatch MakeDispatch(const Request& request, pb::Dispatch::Kind kind) {
  pb::Dispatch dispatch;
  dispatch.set_request_id(request.id.value());
  dispatch.set_epoch(request.epoch.value());
  dispatch.set_kind(kind);
  std::string tokens(request.tokens.size() * sizeof(TokenId), '\0');
  std::memcpy(tokens.data(), request.tokens.data(), tokens.size());
  dispatch.set_tokens(std::move(tokens));
  dispatch.set_prompt_length(request.prompt_length);
  dispatch.set_samples(request.samples);
  dispatch.set_first_sample(request.first_sample);
  v1::Sampling& sampling = *dispatch.mutable_sampling();
  sampling.set_temperature(request.sampling.temperature);
  sampling.set_top_k(request.sampling.top_k);
  sampling.set_top_p(request.sampling.top_p);
  sampling.set_min_p(request.sampling.min_p);
  sampling.set_repetition_penalty(request.sampling.repetition_penalty);
  sampling.set_presence_penalty(request.sampling.presence_penalty);
  sampling.set_frequency_penalty(request.sampling.frequency_penalty);
  sampling.set_seed(request.sampling.seed);
  dispatch.set_top_logprobs(request.sampling.top_logprobs);
  dispatch.set_max_tokens(request.max_tokens);
  dispatch.set_min_tokens(request.min_tokens);
  for (const TokenId stop : request.stop_tokens) dispatch.add_stop_tokens(stop);
  dispatch.set_cache_salt(request.cache_salt);
  return dispatch;
}

}  // namespace baton

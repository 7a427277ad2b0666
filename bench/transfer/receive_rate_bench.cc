// Measures by how much KV that arrives lengthens the inter-token latency (ITL) of a decode worker,
// for several values of transfer.max_receive_gigabytes_per_second and for its default. An engine
// with a real model generates tokens for several streams. A sender in another process hands off
// prompts into blocks that the engine reserves in its arena, in every second period. Prints one
// JSON object. The sender uses a processor of the same machine, so the result is an upper bound.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/quantile.h"
#include "common/engine/decoder_executor.h"
#include "common/engine/engine.h"
#include "common/engine/engine_loop.h"
#include "common/model/open_model.h"
#include "common/worker/transfer_config_wire.h"
#include "kernels/backend.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/must.h"
#include "tests/conformance/socket_control.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 16;
constexpr uint32_t kHandoffBlocks = 32;
constexpr uint32_t kAtATime = 4;  // hand-offs; the blocks of each are reserved between two steps
constexpr Duration kPeriod = std::chrono::milliseconds(400);
constexpr Duration kSettle = std::chrono::milliseconds(50);
constexpr double kDefault = -1;  // as in transfer.max_receive_gigabytes_per_second

struct Setup {
  std::string model;
  bool dummy = false;
  int threads = 1;
  int32_t streams = 8;
  int32_t prompt = 128;
  int periods = 12;
  std::vector<double> limits = {0, 1, 0.25, kDefault};
};

// ---- the sender's process

// Offers a prompt again whenever its hand-off has ended.
class Offers final : public KvSenderListener {
 public:
  void OnRefused(SessionId, Epoch, const Status&) override {}  // the receiver has gone
  void OnFinished(SessionId session, Epoch, const Status& status, const TransferStats&) override {
    if (status.ok()) Next(SessionId(session.value() + kAtATime));
  }

  void Next(SessionId session) const {
    OfferRequest request;
    request.session = session;
    request.epoch = Epoch(1);
    request.peer = WorkerId("decode");
    request.total_tokens = kHandoffBlocks * kBlockTokens;
    request.timeout = std::chrono::minutes(1);
    std::vector<BlockId> blocks;
    const auto first = static_cast<uint32_t>(session.value() % kAtATime);
    for (uint32_t i = 0; i < kHandoffBlocks; ++i) blocks.push_back(BlockId(first + i * kAtATime));
    sender->Offer(request);
    sender->ChunkReady(session, request.epoch, 0, blocks);
    sender->Seal(session, request.epoch, "t");
  }

  KvSender* sender = nullptr;
};

KvTransferOptions TransferOptions(const char* name, const KvLayout& layout, std::string transport) {
  KvTransferOptions options;
  options.worker = WorkerId(name);
  options.boot = BootId(RandomId());
  options.layout = layout;
  options.transport.require_transport = std::move(transport);
  options.transport.listen_address = "127.0.0.1:0";
  return options;
}

// Hands off until the receiver closes `socket`.
int RunSender(const std::string& transport, UniqueFd socket) {
  SocketControl control(std::move(socket));
  const StatusOr<Envelope> first = control.Receive();
  if (!first.ok()) return 0;
  const auto& theirs = std::get<Hello>(first->message);
  const auto backend = Must(OpenBackend({}));
  const uint32_t count = kAtATime * kHandoffBlocks;
  TestMemory arena(backend->device(),
                   count * ShardBlockBytes(theirs.layout, theirs.shards[0].shard));
  arena.Fill(std::byte{1});
  KvTransferOptions options = TransferOptions("prefill", theirs.layout, transport);
  options.shards = {{theirs.shards[0].shard, &arena.buffer(), count}};
  Offers offers;
  const auto sender = Must(KvSender::Create(std::move(options), offers));
  offers.sender = sender.get();
  Must(control.Send({SessionId(), Epoch(), sender->hello()}));
  Must(sender->AddPeer(WorkerId("decode"), &control, theirs));
  std::atomic<bool> ended = false;
  control.Start(
      [&](Envelope envelope) { (void)sender->OnMessage(WorkerId("decode"), std::move(envelope)); },
      [&] {
        ended = true;
        ended.notify_all();
      });
  for (uint64_t id = 1; id <= kAtATime; ++id) offers.Next(SessionId(id));
  ended.wait(false);
  sender->RemovePeer(WorkerId("decode"));
  return 0;
}

struct SenderProcess {
  std::string transport;
  double limit = 0;
  UniqueFd socket;
  pid_t pid = -1;
};

// Starts a sender for each case. Must be called while the process has one thread.
std::vector<SenderProcess> StartSenders(const Setup& setup) {
  std::vector<SenderProcess> senders;
  for (const std::string transport : {"shm", "tcp"}) {
    for (const double limit : setup.limits) {
      int fds[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::exit(1);
      SenderProcess one{transport, limit, UniqueFd(fds[0]), ::fork()};
      if (one.pid == 0) {
        senders.clear();  // else a later sender holds the sockets of earlier ones
        one.socket.Reset();
        std::exit(RunSender(transport, UniqueFd(fds[1])));
      }
      ::close(fds[1]);
      senders.push_back(std::move(one));
    }
  }
  return senders;
}

// ---- the decode worker

// What a decode worker does with hand-offs, but the sequences that were handed off do not start, so
// that every step has the same rows. Records the time between the steps.
class Worker final : public EngineListener, public KvReceiverListener {
 public:
  struct Gaps {
    std::vector<double> quiet;  // milliseconds
    std::vector<double> busy;   // while KV arrived
  };

  Worker(const Setup& setup, int32_t vocabulary) : setup_(setup), vocabulary_(vocabulary) {}

  Engine* engine = nullptr;
  KvReceiver* receiver = nullptr;

  void SubmitStreams() {
    for (int32_t i = 0; i < setup_.streams; ++i) {
      Request request = MakeRequest(uint64_t{1} << 32 | static_cast<uint32_t>(i), setup_.prompt);
      request.max_tokens = 1 << 20;
      engine->Submit(std::move(request));
    }
    std::unique_lock lock(mutex_);
    decoding_.wait(lock, [&] { return rows_ == static_cast<size_t>(setup_.streams); });
  }

  // Records the steps of one period without hand-offs and of one with them.
  Gaps Measure() {
    Gaps gaps;
    gaps.quiet = Record(kPeriod);
    SetReceiving(true);
    std::this_thread::sleep_for(kSettle);
    gaps.busy = Record(kPeriod);
    SetReceiving(false);
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return waiting_.size() == kAtATime; });
    return gaps;
  }

  uint64_t bytes() const { return bytes_; }

  // EngineListener
  void OnTokens(std::span<const TokenOutput> tokens) override {
    const Time now = clock_.Now();
    std::lock_guard lock(mutex_);
    if (records_ && last_ != Time{}) gaps_.push_back(ToMillis(now - last_));
    last_ = now;
    rows_ = tokens.size();
    decoding_.notify_all();
  }
  void OnFinished(RequestId id, Epoch, const RequestTimes&) override {
    Must(InvalidArgument("stream {} reached the end of its context: take fewer periods", id));
  }
  void OnFailed(const RequestFailure& failure) override {
    if (failure.status.code() != StatusCode::kCancelled) Must(failure.status);
  }
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation& reservation) override {
    receiver->Grant(SessionId(reservation.id.value()), reservation.epoch, 0, reservation.blocks);
  }
  void OnCacheEvent(const CacheEvent&) override {}

  // KvReceiverListener
  void OnOffer(const WorkerId&, SessionId session, Epoch epoch, const Offer&) override {
    std::lock_guard lock(mutex_);
    waiting_.emplace_back(session, epoch);
    idle_.notify_all();
    if (receives_) ReserveAll();
  }
  void OnWithdrawn(SessionId, Epoch, const Status&) override {}
  void OnCommitted(SessionId session,
                   Epoch epoch,
                   const std::string&,
                   const TransferStats& stats) override {
    bytes_ += stats.bytes;
    Release(session, epoch);
  }
  void OnReleased(SessionId session, Epoch epoch, const Status& status) override {
    fmt::print(stderr, "session {} failed: {}\n", session, Message(status));
    Release(session, epoch);
  }

 private:
  Request MakeRequest(uint64_t id, int32_t prompt) const {
    Request request;
    request.id = RequestId(id);
    request.epoch = Epoch(1);
    request.prompt_length = prompt;
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < prompt; ++i) {
      tokens.push_back(static_cast<TokenId>((100 + i * 613) % vocabulary_));
    }
    request.tokens = std::move(tokens);
    request.sampling.temperature = 0;
    return request;
  }

  // Needs mutex_.
  void ReserveAll() {
    for (const auto& [session, epoch] : std::exchange(waiting_, {})) {
      Request request = MakeRequest(session.value(), kHandoffBlocks * kBlockTokens);
      request.kind = RequestKind::kDecode;
      request.epoch = epoch;
      engine->Submit(std::move(request));
    }
  }

  void Release(SessionId session, Epoch epoch) {
    engine->Cancel(RequestId(session.value()), epoch);
    engine->ReleaseKv(RequestId(session.value()), epoch);
  }

  void SetReceiving(bool receives) {
    std::lock_guard lock(mutex_);
    receives_ = receives;
    if (receives_) ReserveAll();
  }

  std::vector<double> Record(Duration duration) {
    const auto set = [&](bool records) {
      std::lock_guard lock(mutex_);
      records_ = records;
      last_ = {};
      return std::exchange(gaps_, {});
    };
    (void)set(true);
    std::this_thread::sleep_for(duration);
    return set(false);
  }

  const Setup& setup_;
  const int32_t vocabulary_;
  const SteadyClock clock_;
  std::atomic<uint64_t> bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable decoding_;
  std::condition_variable idle_;
  bool receives_ = false;
  bool records_ = false;
  std::vector<std::pair<SessionId, Epoch>> waiting_;  // offers without an answer
  std::vector<double> gaps_;
  Time last_{};
  size_t rows_ = 0;  // of the last step
};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(1, values.size()));
}

std::string Result(const SenderProcess& sender,
                   uint64_t rate,
                   const std::vector<Worker::Gaps>& pairs,
                   double gigabytes_per_second) {
  std::vector<double> quiet;
  std::vector<double> busy;
  std::vector<double> rises;
  for (const Worker::Gaps& pair : pairs) {
    quiet.insert(quiet.end(), pair.quiet.begin(), pair.quiet.end());
    busy.insert(busy.end(), pair.busy.begin(), pair.busy.end());
    rises.push_back(100 * (Mean(pair.busy) / Mean(pair.quiet) - 1));
  }
  return fmt::format(
      R"({{"transport": "{}", "max_receive_gigabytes_per_second": {:.3f}, "is_default": {}, )"
      R"("received_gigabytes_per_second": {:.3f}, "itl_ms": {:.3f}, "itl_ms_while_receiving": {:.3f}, )"
      R"("itl_ms_p99": {:.3f}, "itl_ms_p99_while_receiving": {:.3f}, "rise_percent": {:.1f}, )"
      R"("rise_percent_p10": {:.1f}, "rise_percent_p90": {:.1f}}})",
      sender.transport,
      static_cast<double>(rate) / 1e9,
      sender.limit == kDefault,
      gigabytes_per_second,
      Mean(quiet),
      Mean(busy),
      Quantile(quiet, 0.99),
      Quantile(busy, 0.99),
      Median(rises),
      Quantile(rises, 0.1),
      Quantile(rises, 0.9));
}

std::string Measure(const Setup& setup, Executor& executor, SenderProcess& sender) {
  config::WorkerConfig config;
  config.mutable_transfer()->set_max_receive_gigabytes_per_second(kDefault);
  config.mutable_engine()->set_threads(setup.threads);
  const uint64_t rate = sender.limit == kDefault
                            ? ReceiveRateWhileComputing(config, MemoryKind::kHost)
                            : static_cast<uint64_t>(sender.limit * 1e9);
  Worker worker(setup, executor.traits().vocabulary);
  const KvArena& arena = executor.kv_arenas().front();
  KvTransferOptions options = TransferOptions("decode", executor.kv_layout(), sender.transport);
  options.shards = {{arena.shard, arena.memory, static_cast<uint32_t>(executor.kv_blocks())}};
  options.transport.receive_bytes_per_second = rate;
  const SteadyClock clock;
  EngineOptions engine_options;
  engine_options.prefix_cache = false;
  engine_options.max_sequences = setup.streams + static_cast<int32_t>(kAtATime);
  const auto engine = Must(Engine::Create(engine_options, executor, worker, clock));
  const auto receiver = Must(KvReceiver::Create(std::move(options), worker));
  worker.engine = engine.get();
  worker.receiver = receiver.get();
  SocketControl control(std::move(sender.socket));
  Must(control.Send({SessionId(), Epoch(), receiver->hello()}));
  const Envelope hello = Must(control.Receive());
  Must(receiver->AddPeer(WorkerId("prefill"), &control, std::get<Hello>(hello.message)));
  control.Start(
      [&](Envelope envelope) {
        (void)receiver->OnMessage(WorkerId("prefill"), std::move(envelope));
      },
      [] {});
  std::vector<Worker::Gaps> pairs;
  double seconds = 0;
  uint64_t warm_up = 0;
  {
    const EngineLoop loop(*engine, "engine");
    worker.SubmitStreams();
    for (int i = 0; i < setup.periods + 1; ++i) {
      const Time begin = clock.Now();
      pairs.push_back(worker.Measure());
      if (i == 0) {  // page faults and connection set-up
        pairs.clear();
        warm_up = worker.bytes();
      } else {
        seconds += ToSeconds(clock.Now() - begin - kPeriod);
      }
    }
  }
  receiver->RemovePeer(WorkerId("prefill"));
  return Result(sender, rate, pairs, static_cast<double>(worker.bytes() - warm_up) / seconds / 1e9);
}

int Main(const Setup& setup) {
  std::vector<SenderProcess> senders = StartSenders(setup);
  const OpenedModel model = Must(
      OpenModel(setup.model, {.format = setup.dummy ? LoadFormat::kDummy : LoadFormat::kAuto}));
  BackendOptions backend_options;
  backend_options.threads = setup.threads;
  const auto backend = Must(OpenBackend(backend_options));
  const DecoderLimits limits = {.max_rows = 512,
                                .max_logit_rows = setup.streams + static_cast<int32_t>(kAtATime)};
  const auto decoder = Must(Decoder::Load(model.spec, *model.weights, backend->ops(), limits));
  KvOptions kv;
  kv.block_tokens = kBlockTokens;
  const auto executor = Must(DecoderExecutor::Create(*decoder, {.kv = kv}));
  fmt::print(
      "{{\"benchmark\": \"kv_receive_rate\", \"model\": \"{}\", \"cores\": {}, \"threads\": {}, "
      "\"streams\": {}, \"cases\": [\n",
      model.name,
      std::thread::hardware_concurrency(),
      setup.threads,
      setup.streams);
  for (SenderProcess& sender : senders) {
    const bool is_last = &sender == &senders.back();
    fmt::print("  {}{}\n", Measure(setup, *executor, sender), is_last ? "" : ",");
    std::fflush(stdout);
    ::waitpid(sender.pid, nullptr, 0);
  }
  fmt::print("]}}\n");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Setup setup;
  CLI::App app("Measures the inter-token latency of a decode worker while KV arrives.");
  app.add_option("model", setup.model, "GGUF file or Hugging Face directory")->required();
  app.add_flag("--dummy", setup.dummy, "Random weights in the model's shape");
  app.add_option("--threads", setup.threads, "Threads that compute");
  app.add_option("--streams", setup.streams, "Decoding sequences");
  app.add_option("--prompt", setup.prompt, "Tokens of each prompt");
  app.add_option("--periods", setup.periods, "Pairs of periods without and with hand-offs");
  app.add_option("--limits", setup.limits, "Bounds in GB/s; 0: none, -1: the default");
  CLI11_PARSE(app, argc, argv);
  return baton::Main(setup);
}

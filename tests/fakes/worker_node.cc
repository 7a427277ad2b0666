#include "tests/fakes/worker_node.h"

#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "common/worker/worker_service.h"
#include "decode_worker/decode_role.h"
#include "kernels/cpu/cpu_device.h"
#include "prefill_worker/prefill_role.h"

namespace baton {
namespace {

constexpr Duration kLong = std::chrono::seconds(60);
constexpr Duration kPoll = std::chrono::milliseconds(2);

KvTransferOptions TransferOf(const NodeOptions& options, Worker& worker) {
  KvTransferOptions transfer;
  transfer.worker = worker.identity().id;
  transfer.boot = worker.identity().boot;
  transfer.model_fingerprint = worker.identity().fingerprint;
  transfer.weights = worker.identity().weights;
  transfer.layout = worker.executor().kv_layout();
  transfer.shards = LocalShardsOf(worker.executor());
  transfer.transport.names = {options.transport};
  transfer.transport.require_transport = options.transport;
  transfer.transport.listen_address = "127.0.0.1:0";
  transfer.make_transport = options.make_transport;
  transfer.times = options.times;
  return transfer;
}

}  // namespace

WorkerNode::WorkerNode(const NodeOptions& options)
    : options_(options),
      model_(std::make_unique<FakeExecutor>(
          options.kv, options.shape, std::make_unique<CpuDevice>())) {
  Start(*model_);
}

WorkerNode::WorkerNode(const NodeOptions& options, Executor& executor) : options_(options) {
  Start(executor);
}

void WorkerNode::Start(Executor& executor) {
  const NodeOptions& options = options_;
  WorkerOptions worker_options;
  worker_options.id = WorkerId(options.id);
  worker_options.model = "fake";
  worker_options.engine = options.engine;
  worker_options.routers.targets = {options.router};
  worker_ = Worker::Create(std::move(worker_options), executor, metrics_, clock_).value();
  if (options.decode) {
    DecodeOptions decode;
    decode.handoffs.match_wait = options.match_wait;
    decode.handoffs.unmatched_offers = options.max_unmatched_offers;
    decode.receive_rate_while_computing = options.receive_rate_while_computing;
    auto role = DecodeRole::Create(*worker_, TransferOf(options, *worker_), decode).value();
    const std::string address = role->kv_address();
    worker_->SetRole(RequestKind::kDecode, std::move(role), address);
  }
  if (options.prefill) {
    PrefillOptions prefill;
    prefill.handoffs.redirect_wait = options.redirect_wait;
    auto role = PrefillRole::Create(*worker_, TransferOf(options, *worker_), prefill).value();
    worker_->SetRole(RequestKind::kPrefill, std::move(role), "");
  }
  const Status started = worker_->Start();
  EXPECT_TRUE(started.ok()) << started;
}

void WorkerNode::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (model_ != nullptr)
    model_->AllowRuns(INT64_MAX);  // a failed test may have left a step blocked
  worker_->Stop();
  const Status books = worker_->engine().CheckIntegrity();
  EXPECT_TRUE(books.ok()) << options_.id << ": " << books;
  EXPECT_EQ(worker_->engine().Stats().blocks_leaked, 0) << options_.id;
  EXPECT_EQ(model_ == nullptr ? 0 : model_->faults(), 0)
      << options_.id << " has read KV that no step wrote";
}

void WorkerNode::ExpectNothingHeld() {
  const Time deadline = clock_.Now() + kLong;
  EngineStats stats = worker_->engine().Stats();
  const auto busy = [&stats] {
    return stats.leases > 0 || stats.running + stats.waiting + stats.awaiting_kv > 0 ||
           stats.blocks_free != stats.blocks_total;
  };
  while (busy() && clock_.Now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    stats = worker_->engine().Stats();
  }
  EXPECT_EQ(stats.leases, 0) << options_.id;
  EXPECT_EQ(stats.running + stats.waiting + stats.awaiting_kv, 0) << options_.id;
  EXPECT_EQ(stats.blocks_free, stats.blocks_total) << options_.id;
  EXPECT_EQ(stats.blocks_leaked, 0) << options_.id;
}

}  // namespace baton

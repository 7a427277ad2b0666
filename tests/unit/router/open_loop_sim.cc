#include "tests/unit/router/open_loop_sim.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <random>

#include "common/base/check.h"
#include "common/engine/scheduler.h"
#include "router/routing/policies/routing_policy.h"
#include "router/workers/worker_book.h"

namespace baton::router {
namespace {

constexpr Epoch kEpoch{1};
constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
constexpr Duration kOneWay = std::chrono::microseconds(300);
// Host time between two steps: a step that mixes a prompt with decodes is planned and launched only
// after the previous step has ended.
constexpr double kHostMs = 0.2;
constexpr double kWarmSeconds = 3;

// The simulated device's time for a step, in milliseconds. A step that also decodes includes one
// more read of the weights than a prompt alone.
double DeviceMs(const OpenLoop& speed, const StepWork& work) {
  const auto seen = static_cast<double>(work.prompt_context);
  if (work.decodes == 0) return 0.6 + speed.prefill_token_ms * work.prompt_tokens + 1e-6 * seen;
  return speed.decode_base_ms + 0.02 * work.decodes +
         2.7e-5 * static_cast<double>(work.decode_context) + 0.0215 * work.prompt_tokens +
         1e-6 * seen;
}

EngineOptions OptionsFor(double itl_target_ms) {
  EngineOptions options;
  options.max_step_tokens = 8192;
  options.max_sequences = 128;
  options.itl_target = FromSeconds(itl_target_ms / 1e3);
  if (itl_target_ms == 0) options.full_step_tokens = 2048;
  options.prefix_cache = false;
  return options;
}

struct Node {
  Node(const EngineOptions& options, WorkerBook& book, WorkerInfo info)
      : cache(16384, 16, false),
        scheduler({.engine = options,
                   .limits = {.context_length = 16384, .vocabulary = 100, .max_samples = 128},
                   .model_fingerprint = {}},
                  cache),
        slot(*book.Add(std::move(info), Time{})) {}

  WorkerLoad Load() const {
    const SchedulerCounts counts = scheduler.Counts();
    const StepTimeModel::Fit& fit = steps.fit();
    WorkerLoad load;
    load.engine.running = counts.running;
    load.engine.waiting = counts.waiting;
    load.engine.awaiting_kv = counts.awaiting_kv;
    load.engine.queued_tokens = counts.queued_tokens;
    load.engine.blocks_free = cache.available();
    load.engine.step_ms_base = fit.base_ms;
    load.engine.step_ms_per_token = fit.decode_ms;
    load.engine.step_ms_per_token_context = fit.decode_context_ms;
    load.engine.step_ms_per_prompt_token = fit.prompt_token_ms;
    load.engine.step_ms_per_prompt_token_context = fit.prompt_context_ms;
    return load;
  }

  KvCache cache;
  Scheduler scheduler;
  StepTimeModel steps;
  WorkerSlot slot;
  bool busy = false;
};

class Simulation final {
 public:
  explicit Simulation(const OpenLoop& settings)
      : settings_(settings),
        random_(settings.seed),
        prefill_(OptionsFor(0), book_, Info("p", true, 0)),
        decode_(
            OptionsFor(settings.itl_target_ms), book_, Info("d", false, settings.itl_target_ms)),
        policy_(MakeRoutingPolicy(PolicyKind::kCost, settings.seed)) {}

  OpenLoopResult Run() {
    uint64_t requests = 0;
    for (const double seconds : settings_.arrivals) {
      last_arrival_ = Time{} + FromSeconds(seconds);
      At(last_arrival_, [this, id = RequestId(++requests)] { Arrive(id); });
    }
    At(Time{}, [this] { Beat(prefill_); });
    At(Time{} + kHeartbeat / 2, [this] { Beat(decode_); });
    while (!events_.empty()) {
      now_ = events_.top().at;
      const auto act = events_.top().act;
      events_.pop();
      act();
    }
    OpenLoopResult result;
    for (const auto& [id, client] : clients_) {
      BATON_CHECK(client.tokens == settings_.output, "request {} got {} tokens", id, client.tokens);
      result.ttft_ms.push_back(ToMillis(client.first - client.sent));
      result.worst_gap_ms.push_back(ToMillis(client.worst));
      result.believed_ms.push_back(client.believed_ms);
      result.alone.push_back(client.alone);
      result.served_alone += client.alone ? 1 : 0;
    }
    result.slowest_step_ms = slowest_step_ms_;
    return result;
  }

 private:
  struct Event {
    Time at;
    uint64_t order;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return std::pair(other.at, other.order) < std::pair(at, order);
    }
  };
  struct Client {
    Time sent{};
    Time first{};
    Time last{};
    Duration worst{};
    double believed_ms = 0;
    int tokens = 0;
    bool alone = false;
  };

  static WorkerInfo Info(const std::string& id, bool prefill, double itl_target_ms) {
    WorkerInfo info;
    info.id = WorkerId(id);
    info.can_prefill = prefill;
    info.can_decode = !prefill;
    info.block_tokens = 16;
    info.blocks = 16384;
    info.max_sequences = 128;
    info.max_step_tokens = 8192;
    info.itl_target = FromSeconds(itl_target_ms / 1e3);
    return info;
  }

  void At(Time at, std::function<void()> act) { events_.push({at, ++order_, std::move(act)}); }

  void Beat(Node& node) {
    const WorkerLoad load = node.Load();
    At(now_ + kOneWay, [this, &node, load] { book_.OnHeartbeat(node.slot, load, now_); });
    if (now_ < last_arrival_) At(now_ + kHeartbeat, [this, &node] { Beat(node); });
  }

  Request Make(RequestId id, RequestKind kind, int output) const {
    Request request;
    request.id = id;
    request.epoch = kEpoch;
    request.kind = kind;
    request.tokens = std::vector<TokenId>(settings_.prompt, 1);
    request.prompt_length = settings_.prompt;
    request.max_tokens = output;
    return request;
  }

  void Arrive(RequestId id) {
    const auto candidate = [&](const Node& node) {
      return Candidate{node.slot, &book_.record(node.slot), book_.Estimate(node.slot), 0};
    };
    const Candidate prefill = candidate(prefill_);
    const Candidate decode = candidate(decode_);
    RouteQuery query;
    query.prompt_tokens = settings_.prompt;
    query.max_tokens = settings_.output;
    query.expected_output = settings_.output;
    query.local_tokens = 64;
    query.prefill = {&prefill, 1};
    query.decode = {&decode, 1};
    const Route route = policy_->Select(query);
    Client& client = clients_[id];
    client.sent = now_;
    client.believed_ms = route.ttft_ms;
    client.alone = route.prefill == nullptr;
    WorkerBook::Booking booking{.prompt_tokens = 0, .blocks = settings_.prompt / 16 + 1};
    if (client.alone) {
      booking.prompt_tokens = settings_.prompt;
    } else {
      book_.Book(prefill_.slot, id, kEpoch, {settings_.prompt, booking.blocks}, now_);
      // The lease of the hand-off on the prefill worker is not simulated: the request ends there
      // with its first token.
      Send(prefill_, Make(id, RequestKind::kServe, 1));
    }
    book_.Book(decode_.slot, id, kEpoch, booking, now_);
    const RequestKind kind = client.alone ? RequestKind::kServe : RequestKind::kDecode;
    Send(decode_, Make(id, kind, settings_.output));
  }

  void Send(Node& node, const Request& request) {
    At(now_ + kOneWay, [this, &node, request] {
      node.scheduler.Add(request, now_);
      Step(node);
    });
  }

  void Step(Node& node) {
    if (node.busy) return;
    const StepPlan& plan = node.scheduler.Plan(now_);
    Deliver(node);
    if (plan.rows.empty()) return;
    const StepWork work = plan.work;
    const double noise = std::uniform_real_distribution<double>(0.99, 1.01)(random_);
    const double ms = DeviceMs(settings_, work) * noise;
    const double host = work.prompt_tokens > 0 && work.decodes > 0 ? kHostMs : 0;
    if (&node == &decode_ && now_ > Time{} + FromSeconds(kWarmSeconds)) {
      slowest_step_ms_ = std::max(slowest_step_ms_, ms);
    }
    node.busy = true;
    At(now_ + FromSeconds((ms + host) / 1e3), [this, &node, work, ms] {
      node.busy = false;
      node.steps.Observe(work, FromSeconds(ms / 1e3));
      node.scheduler.set_step_time(node.steps);
      std::vector<SampledToken> sampled(node_logits_[&node], SampledToken{1, 0, {}});
      node.scheduler.Commit(sampled, now_);
      node.scheduler.StoreBlocks();
      Deliver(node);
      Step(node);
    });
    node_logits_[&node] = plan.logit_rows;
  }

  void Deliver(Node& node) {
    const Outcomes outcomes = node.scheduler.TakeOutcomes();
    BATON_CHECK(outcomes.failures.empty(), "a request failed");
    for (const TokenOutput& token : outcomes.tokens) Receive(node, token);
    for (const Outcomes::Finish& finish : outcomes.finished) {
      if (&node == &decode_) node.scheduler.ReleaseKv({finish.id, finish.epoch});
      At(now_ + kOneWay,
         [this, &node, finish] { book_.Release(node.slot, finish.id, finish.epoch); });
    }
  }

  void Receive(Node& node, const TokenOutput& token) {
    Client& client = clients_.at(token.id);
    if (token.index == 0) {
      client.first = now_;
      At(now_ + kOneWay,
         [this, &node, token] { book_.PromptDone(node.slot, token.id, token.epoch); });
    } else {
      client.worst = std::max(client.worst, now_ - client.last);
    }
    client.last = now_;
    ++client.tokens;
    if (&node == &decode_) return;
    At(now_ + FromSeconds(settings_.transfer_ms / 1e3), [this, token] {
      decode_.scheduler.Activate({token.id, token.epoch}, {token.token}, now_);
      Step(decode_);
    });
  }

  const OpenLoop settings_;
  std::mt19937_64 random_;
  WorkerBook book_;
  Node prefill_;
  Node decode_;
  const std::unique_ptr<RoutingPolicy> policy_;
  std::priority_queue<Event> events_;
  std::map<RequestId, Client> clients_;
  std::map<const Node*, int32_t> node_logits_;
  uint64_t order_ = 0;
  Time now_{};
  Time last_arrival_{};
  double slowest_step_ms_ = 0;
};

}  // namespace

std::vector<double> Arrivals(double rate, double seconds, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> between(rate);
  std::vector<double> arrivals;
  double at = between(random);
  while (at < seconds) {
    arrivals.push_back(at);
    at += between(random);
  }
  return arrivals;
}

OpenLoopResult Simulate(const OpenLoop& settings) {
  return Simulation(settings).Run();
}

double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

}  // namespace baton::router

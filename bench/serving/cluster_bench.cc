// Measures what disaggregation costs and gains when each worker is a separate process, mainly on
// GPUs. README.md describes the cases. Prints a JSON object for each case.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/serving/load_client.h"
#include "bench/serving/open_load.h"
#include "bench/serving/spread.h"
#include "cli/local_cluster.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/model/open_model.h"
#include "tests/fakes/byte_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr auto kStartLimit = std::chrono::seconds(120);
constexpr auto kDrainLimit = std::chrono::seconds(20);
// Pause before each measured request. A GPU at its power limit is faster after a rest, so without
// the pause the time would depend on whether this GPU or the other one has just decoded. The pause
// is below 1 s, because after 1 s all gRPC threads of this client sleep for 100 ms at once.
constexpr auto kRest = std::chrono::milliseconds(700);

struct Options {
  std::string model;
  bool dummy = false;
  std::vector<std::string> prefill_devices = {"cuda:0"};
  std::vector<std::string> decode_devices = {"cuda:1"};
  std::vector<std::string> unified_devices = {"cuda:0"};
  RankCounts prefill_ranks;  // also of unified workers
  RankCounts decode_ranks;
  std::string transport = "cuda_ipc";
  std::string log_folder;
  std::vector<std::string> worker_set;
  std::vector<std::string> decode_set;
  std::vector<std::string> cases = {"meet", "latency", "gaps", "gaps_unified", "open"};
  std::vector<int> prompts = {512, 2048, 8192, 16000, 32000};
  int rounds = 5;
  int meetings = 3;
  int streams = 32;
  int stream_prompt = 2048;
  int stream_output = 1200;
  int intruder = 8192;
  int intruders = 6;
  std::vector<double> rates = {7};
  OpenLoad open;
};

const RequestTrace& Finished(LoadCall& call) {
  const RequestTrace& trace = call.Await();
  BATON_CHECK(trace.status.ok(), "a request failed: {}", Message(trace.status));
  return trace;
}

// Which workers a cluster has. Each worker takes as many of its role's devices as it has ranks.
enum class Kind {
  kUnified,  // unified workers
  kSplit,    // prefill workers and decode workers
  // One unified worker and one decode worker. The router alternates: the unified worker serves
  // every second request alone and hands the others over. The two kinds of requests then differ
  // only by the hand-off: the prefill runs in the same process, in the same memory.
  kTurns,
};

// The workers that these devices hold: at least one, as devices may be shared.
int Count(const std::vector<std::string>& devices, const RankCounts& ranks) {
  return std::max(1, static_cast<int>(devices.size()) / ranks.ranks());
}

// The workers of a cluster, without the decode worker of kTurns. `unified`: which unified worker.
WorkerCounts WorkersOf(const Options& options, Kind kind, int unified) {
  WorkerCounts workers;
  if (kind == Kind::kSplit) {
    workers.prefill_devices = options.prefill_devices;
    workers.prefill_ranks = options.prefill_ranks;
    workers.prefill = Count(options.prefill_devices, options.prefill_ranks);
    workers.decode_devices = options.decode_devices;
    workers.decode_ranks = options.decode_ranks;
    workers.decode = Count(options.decode_devices, options.decode_ranks);
    return workers;
  }
  workers.unified = true;
  workers.decode = 1;
  workers.decode_ranks = options.prefill_ranks;
  const std::vector<std::string>& devices = options.unified_devices;
  const auto ranks = static_cast<size_t>(options.prefill_ranks.ranks());
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t index = static_cast<size_t>(unified) * ranks + rank;
    workers.decode_devices.push_back(devices[index % devices.size()]);
  }
  return workers;
}

LocalClusterOptions ClusterOf(const Options& options,
                              const std::string& model,
                              Kind kind,
                              int unified) {
  LocalClusterOptions cluster;
  cluster.binary_folder = BinaryFolder();
  cluster.model = model;
  cluster.log_folder = options.log_folder;
  if (!cluster.log_folder.empty()) {
    cluster.log_folder += kind == Kind::kSplit     ? "/split"
                          : kind == Kind::kUnified ? "/unified-" + std::to_string(unified)
                                                   : "/turns";
    std::filesystem::create_directories(cluster.log_folder);
  }
  cluster.workers = WorkersOf(options, kind, unified);
  if (kind == Kind::kSplit) cluster.decode_set = options.decode_set;
  if (kind == Kind::kTurns) cluster.router_set = {"policy=round_robin"};
  if (kind != Kind::kUnified && !options.transport.empty()) {
    cluster.worker_set.push_back("transfer.require_transport=" + options.transport);
  }
  if (options.dummy) {
    cluster.worker_set.push_back("model.load_format=dummy");
    cluster.router_set.push_back("model.load_format=dummy");
  }
  cluster.worker_set.insert(
      cluster.worker_set.end(), options.worker_set.begin(), options.worker_set.end());
  return cluster;
}

// A cluster of processes and a client of this cluster. Several unified workers are several
// clusters, to which requests are dealt in turn: one router would let unified workers hand over to
// each other.
class Side final {
 public:
  Side(const Options& options, const std::string& model, int32_t vocabulary, Kind kind) {
    const int count =
        kind == Kind::kUnified ? Count(options.unified_devices, options.prefill_ranks) : 1;
    const Time start = SteadyClock().Now();
    for (int i = 0; i < count; ++i) {
      auto started = LocalCluster::Start(ClusterOf(options, model, kind, i), kStartLimit);
      BATON_CHECK(started.ok(), "{}", Message(started.status()));
      clusters_.push_back(*std::move(started));
    }
    start_seconds_ = ToSeconds(SteadyClock().Now() - start);
    if (kind == Kind::kTurns) {
      WorkerPlan decoding = PlanWorkers({.prefill = 0,
                                         .decode = 1,
                                         .prefill_ranks = {},
                                         .decode_ranks = options.decode_ranks,
                                         .prefill_devices = {},
                                         .decode_devices = options.decode_devices,
                                         .unified = false})
                                .front();
      decoding.name = "decode-1";
      const Status joined = clusters_.front()->AddWorker(decoding, kStartLimit);
      BATON_CHECK(joined.ok(), "{}", Message(joined));
    }
    for (const std::unique_ptr<LocalCluster>& cluster : clusters_) {
      clients_.push_back(std::make_unique<LoadClient>(cluster->server(), vocabulary));
    }
  }
  ~Side() {
    for (const std::unique_ptr<LocalCluster>& cluster : clusters_) cluster->Drain(kDrainLimit);
  }

  LoadClient& client() { return *clients_[sent_++ % clients_.size()]; }
  double start_seconds() const { return start_seconds_; }

 private:
  double start_seconds_ = 0;
  std::vector<std::unique_ptr<LocalCluster>> clusters_;
  std::vector<std::unique_ptr<LoadClient>> clients_;
  size_t sent_ = 0;
};

void Print(const std::string& name, Json result) {
  result["case"] = name;
  std::puts(result.dump().c_str());
  std::fflush(stdout);
}

// ---- the first request between two workers that just met

struct Meeting {
  double first_ms[2];   // TTFT of the first and of the second request
  double second_ms[2];  // time to second token of the first and of the second request
};

Meeting Meet(Side& split) {
  Meeting meeting{};
  for (int i = 0; i < 2; ++i) {
    LoadCall* const call = split.client().Send(2048, 4);
    const RequestTrace& trace = Finished(*call);
    meeting.first_ms[i] = trace.FirstMs();
    meeting.second_ms[i] = ToMillis(trace.tokens[1] - trace.sent);
  }
  return meeting;
}

Json MeetingsOf(const std::vector<Meeting>& meetings) {
  std::vector<double> first;
  std::vector<double> second;
  for (const Meeting& meeting : meetings) {
    first.push_back(meeting.first_ms[0] - meeting.first_ms[1]);
    second.push_back(meeting.second_ms[0] - meeting.second_ms[1]);
  }
  return {{"meetings", meetings.size()},
          {"first_request_ttft_above_second_ms", Spread(first)},
          {"first_request_second_token_above_second_ms", Spread(second)}};
}

// ---- one request at a time

struct Sample {
  double ttft_ms = 0;
  double second_gap_ms = 0;
  double step_ms = 0;  // median gap between later tokens
  v1::Timings timings;
};

Sample Ask(Side& side, int prompt) {
  std::this_thread::sleep_for(kRest);
  LoadCall* const call = side.client().Send(prompt, 12);
  const RequestTrace& trace = Finished(*call);
  Sample sample;
  sample.ttft_ms = trace.FirstMs();
  sample.second_gap_ms = trace.GapMs(1);
  std::vector<double> steps;
  for (size_t i = 2; i < trace.tokens.size(); ++i) steps.push_back(trace.GapMs(i));
  sample.step_ms = Median(steps);
  sample.timings = trace.timings;
  return sample;
}

template <class Figure>
std::vector<double> Figures(const std::vector<Sample>& samples, const Figure& figure) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(figure(sample));
  return values;
}

Json Latency(const Options& options, Side& turns, int prompt) {
  Ask(turns, prompt);
  Ask(turns, prompt);
  std::vector<Sample> alone;
  std::vector<Sample> handed;
  Json in_order = Json::array();
  for (int round = 0; round < options.rounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      const Sample sample = Ask(turns, prompt);
      const bool split = !sample.timings.transport().empty();
      in_order.push_back({split ? "split" : "unified", sample.ttft_ms});
      (split ? handed : alone).push_back(sample);
    }
    BATON_CHECK(alone.size() == handed.size(), "the router did not take turns");
  }
  std::vector<double> above;
  for (size_t i = 0; i < alone.size(); ++i) above.push_back(handed[i].ttft_ms - alone[i].ttft_ms);
  const auto ttft = [](const Sample& s) { return s.ttft_ms; };
  const auto exposed = [](const Sample& s) { return s.second_gap_ms - s.step_ms; };
  return {{"prompt", prompt},
          {"rounds", options.rounds},
          {"unified_ttft_ms", Spread(Figures(alone, ttft))},
          {"split_ttft_ms", Spread(Figures(handed, ttft))},
          {"ttft_above_unified_ms", Spread(above)},
          {"ttft_in_order_ms", in_order},
          {"unified_second_token_above_step_ms", Spread(Figures(alone, exposed))},
          {"second_token_above_step_ms", Spread(Figures(handed, exposed))},
          {"step_ms", Spread(Figures(handed, [](const Sample& s) { return s.step_ms; }))},
          {"unified_compute_ms",
           Spread(Figures(alone, [](const Sample& s) { return s.timings.prefill_ms(); }))},
          {"split_compute_ms",
           Spread(Figures(handed, [](const Sample& s) { return s.timings.prefill_ms(); }))},
          {"kv_gigabytes_per_second",
           Spread(Figures(
               handed, [](const Sample& s) { return s.timings.transfer_gigabytes_per_second(); }))},
          {"exposed_transfer_ms",
           Spread(Figures(handed, [](const Sample& s) { return s.timings.transfer_ms(); }))},
          {"kv_bytes", handed.back().timings.transfer_bytes()},
          {"transport", handed.back().timings.transport()},
          {"prefill_tp", options.prefill_ranks.tensor_parallel},
          {"decode_tp", options.decode_ranks.tensor_parallel}};
}

// Latency of requests with a hand-off only, to compare transfer settings.
Json SplitLatency(const Options& options, Side& split, int prompt) {
  Ask(split, prompt);
  std::vector<Sample> handed;
  for (int round = 0; round < options.rounds; ++round) handed.push_back(Ask(split, prompt));
  return {{"prompt", prompt},
          {"split_ttft_ms", Spread(Figures(handed, [](const Sample& s) { return s.ttft_ms; }))},
          {"split_compute_ms",
           Spread(Figures(handed, [](const Sample& s) { return s.timings.prefill_ms(); }))},
          {"second_token_above_step_ms",
           Spread(Figures(handed, [](const Sample& s) { return s.second_gap_ms - s.step_ms; }))},
          {"kv_gigabytes_per_second",
           Spread(Figures(
               handed, [](const Sample& s) { return s.timings.transfer_gigabytes_per_second(); }))},
          {"exposed_transfer_ms",
           Spread(Figures(handed, [](const Sample& s) { return s.timings.transfer_ms(); }))},
          {"kv_bytes", handed.back().timings.transfer_bytes()},
          {"transport", handed.back().timings.transport()},
          {"prefill_tp", options.prefill_ranks.tensor_parallel},
          {"decode_tp", options.decode_ranks.tensor_parallel},
          {"worker_set", options.worker_set}};
}

// ---- long prompts beside requests that generate

double WorstGap(const std::vector<RequestTrace>& traces, Time begin, Time end) {
  double worst = 0;
  for (const RequestTrace& trace : traces) {
    for (size_t i = 1; i < trace.tokens.size(); ++i) {
      if (trace.tokens[i] < begin || trace.tokens[i - 1] > end) continue;
      worst = std::max(worst, trace.GapMs(i));
    }
  }
  return worst;
}

Json Gaps(const Options& options, Side& side) {
  std::vector<LoadCall*> streams;
  for (int i = 0; i < options.streams; ++i) {
    streams.push_back(side.client().Send(options.stream_prompt, options.stream_output));
  }
  for (LoadCall* const stream : streams) stream->AwaitTokens(16);
  struct Window {
    Time begin, end;
    bool quiet;
  };
  std::vector<Window> windows;
  std::vector<double> ttft;
  for (int i = 0; i < options.intruders; ++i) {
    const Time begin = SteadyClock().Now();
    LoadCall* const call = side.client().Send(options.intruder, 2);
    ttft.push_back(Finished(*call).FirstMs());
    const Time end = SteadyClock().Now();
    windows.push_back({begin, end, false});
    std::this_thread::sleep_for(end - begin);  // an equally long window without an intruder
    windows.push_back({end, SteadyClock().Now(), true});
  }
  std::vector<RequestTrace> traces;
  size_t ended = 0;
  for (LoadCall* const stream : streams) {
    traces.push_back(stream->Snapshot());
    stream->Cancel();
    if (std::cmp_equal(traces.back().tokens.size(), options.stream_output)) ++ended;
  }
  for (LoadCall* const stream : streams) (void)stream->Await();
  std::vector<double> quiet;
  std::vector<double> disturbed;
  for (const Window& window : windows) {
    (window.quiet ? quiet : disturbed).push_back(WorstGap(traces, window.begin, window.end));
  }
  std::vector<double> steps;
  for (const RequestTrace& trace : traces) {
    for (size_t i = 16; i < trace.tokens.size(); ++i) steps.push_back(trace.GapMs(i));
  }
  return {{"streams", options.streams},
          {"context", options.stream_prompt},
          {"intruder", options.intruder},
          {"intruder_ttft_ms", Spread(ttft)},
          {"streams_that_ended_early", ended},
          {"gap_ms", Spread(steps)},
          {"worst_gap_undisturbed_ms", Spread(quiet)},
          {"worst_gap_disturbed_ms", Spread(disturbed)},
          {"worst_gap_above_undisturbed_ms", Median(disturbed) - Median(quiet)}};
}

void PrintOpen(const std::string& name, const Options& options, Side& side) {
  const auto send = [&](int prompt, int output) { return side.client().Send(prompt, output); };
  OpenLoad load = options.open;
  // Before the first run, so that all pairs of workers have met.
  load.rate = options.rates.front();
  load.seconds = std::min(2.0, load.seconds);
  (void)RunOpenLoad(load, send);
  load.seconds = options.open.seconds;
  for (const double rate : options.rates) {
    load.rate = rate;
    Json result = RunOpenLoad(load, send);
    if (name == "open") {
      result["prefill_devices"] = options.prefill_devices;
      result["decode_devices"] = options.decode_devices;
      result["decode_set"] = options.decode_set;
    } else {
      result["unified_devices"] = options.unified_devices;
    }
    Print(name, std::move(result));
  }
}

int Run(const Options& options) {
  const auto opened = OpenModel(options.model, {.format = LoadFormat::kDummy});
  BATON_CHECK(opened.ok(), "{}", Message(opened.status()));
  std::optional<ByteModel> with_tokenizer;
  if (options.dummy) with_tokenizer.emplace(ByteModel::From(options.model));
  const std::string model = options.dummy ? with_tokenizer->path() : options.model;
  const auto wanted = [&](const char* name) {
    return std::ranges::find(options.cases, name) != options.cases.end();
  };
  const int32_t vocabulary = opened->spec.vocab;
  std::vector<Meeting> meetings;
  if (wanted("meet")) {
    for (int i = 1; i < options.meetings; ++i) {
      Side split(options, model, vocabulary, Kind::kSplit);
      meetings.push_back(Meet(split));
    }
  }
  Json seconds = Json::object();
  if (wanted("latency")) {
    Side turns(options, model, vocabulary, Kind::kTurns);
    seconds["turns_s"] = turns.start_seconds();
    for (const int prompt : options.prompts) Print("latency", Latency(options, turns, prompt));
  }
  std::optional<Side> unified;
  std::optional<Side> split;
  if (wanted("gaps_unified") || wanted("open_unified")) {
    unified.emplace(options, model, vocabulary, Kind::kUnified);
    seconds["unified_s"] = unified->start_seconds();
  }
  if (wanted("meet") || wanted("split_latency") || wanted("gaps") || wanted("open")) {
    split.emplace(options, model, vocabulary, Kind::kSplit);
    seconds["split_s"] = split->start_seconds();
    meetings.push_back(Meet(*split));
  }
  Print("start", seconds);
  if (wanted("meet")) Print("meet", MeetingsOf(meetings));
  if (wanted("split_latency")) {
    for (const int prompt : options.prompts) {
      Print("split_latency", SplitLatency(options, *split, prompt));
    }
  }
  if (wanted("gaps")) Print("gaps", Gaps(options, *split));
  if (wanted("gaps_unified")) Print("gaps_unified", Gaps(options, *unified));
  if (wanted("open")) PrintOpen("open", options, *split);
  if (wanted("open_unified")) PrintOpen("open_unified", options, *unified);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options options;
  CLI::App app(
      "Compares prefill and decode workers with a unified worker, each in its own process");
  app.option_defaults()->always_capture_default();
  app.add_option("model", options.model, "GGUF file or Hugging Face directory")->required();
  app.add_flag("--dummy", options.dummy, "use random weights and a byte tokenizer");
  app.add_option("--prefill-device", options.prefill_devices, "devices of prefill workers")
      ->delimiter(',');
  app.add_option("--decode-device", options.decode_devices, "devices of decode workers")
      ->delimiter(',');
  app.add_option("--unified-device", options.unified_devices, "devices of unified workers")
      ->delimiter(',');
  app.add_option("--prefill-tp",
                 options.prefill_ranks.tensor_parallel,
                 "tensor ranks of each prefill worker and of each unified worker");
  app.add_option(
      "--decode-tp", options.decode_ranks.tensor_parallel, "tensor ranks of each decode worker");
  app.add_option("--transport", options.transport, "KV transport to require; empty: any");
  app.add_option(
      "--log-folder", options.log_folder, "folder for the processes' logs; empty: stderr");
  app.add_option("--worker-set", options.worker_set, "a setting (name=value) of every worker")
      ->allow_extra_args(false);
  app.add_option("--decode-set",
                 options.decode_set,
                 "a setting (name=value) of the decode worker in the cases of split workers")
      ->allow_extra_args(false);
  app.add_option("--cases",
                 options.cases,
                 "any of meet, latency, split_latency, gaps, gaps_unified, open, open_unified")
      ->delimiter(',');
  app.add_option("--prompts", options.prompts, "latency: prompt lengths in tokens")->delimiter(',');
  app.add_option("--rounds", options.rounds, "latency: requests of each kind");
  app.add_option("--meetings", options.meetings, "meet: pairs of workers that are started");
  app.add_option("--streams", options.streams, "gaps: requests that generate");
  app.add_option("--stream-prompt", options.stream_prompt, "gaps: their prompt tokens");
  app.add_option("--stream-output", options.stream_output, "gaps: their output tokens");
  app.add_option("--intruder", options.intruder, "gaps: tokens of each long prompt");
  app.add_option("--intruders", options.intruders, "gaps: long prompts, one after the other");
  app.add_option("--open-prompt", options.open.prompt, "open: prompt tokens");
  app.add_option("--open-output", options.open.output, "open: output tokens");
  app.add_option("--rate", options.rates, "open: requests per second, one run for each rate")
      ->delimiter(',');
  app.add_option("--seconds", options.open.seconds, "open: duration of the arrivals in seconds");
  app.add_option("--ttft-goal", options.open.ttft_goal_ms, "open: the longest good TTFT in ms");
  app.add_option("--itl-goal",
                 options.open.itl_goal_ms,
                 "open: the longest good p99 of a request's ITL in ms");
  CLI11_PARSE(app, argc, argv);
  return baton::Run(options);
}

// Measures what disaggregation costs and gains when each worker is a separate process, mainly on
// GPUs. README.md describes the cases. Prints a JSON object for each case.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/serving/cluster_side.h"
#include "bench/serving/latency.h"
#include "bench/serving/load_client.h"
#include "bench/serving/open_load.h"
#include "bench/serving/spread.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/model/open_model.h"
#include "tests/fakes/byte_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;

struct Options {
  SideOptions sides;
  int unified_tp = 0;  // 0: as prefill workers
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
    const RequestTrace& trace = split.Finish(*split.client().Send(2048, 4));
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
    ttft.push_back(side.Finish(*call).FirstMs());
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
      result["prefill_devices"] = options.sides.prefill_devices;
      result["prefill_tp"] = options.sides.prefill_ranks.tensor_parallel;
      result["decode_devices"] = options.sides.decode_devices;
      result["decode_tp"] = options.sides.decode_ranks.tensor_parallel;
      result["decode_set"] = options.sides.decode_set;
    } else {
      result["unified_devices"] = options.sides.unified_devices;
      result["unified_tp"] = options.sides.unified_ranks.tensor_parallel;
    }
    Print(name, std::move(result));
  }
}

int Run(Options options) {
  SideOptions& sides = options.sides;
  const auto opened = OpenModel(sides.model, {.format = LoadFormat::kDummy});
  BATON_CHECK(opened.ok(), "{}", Message(opened.status()));
  sides.vocabulary = opened->spec.vocab;
  std::optional<ByteModel> with_tokenizer;
  if (sides.dummy) {
    with_tokenizer.emplace(ByteModel::From(sides.model));
    sides.model = with_tokenizer->path();
  }
  sides.unified_ranks.tensor_parallel =
      options.unified_tp > 0 ? options.unified_tp : sides.prefill_ranks.tensor_parallel;
  const auto wanted = [&](const char* name) {
    return std::ranges::find(options.cases, name) != options.cases.end();
  };
  // One cluster at a time is in memory, because two may not fit.
  std::vector<Meeting> meetings;
  if (wanted("meet")) {
    for (int i = 1; i < options.meetings; ++i) {
      Side split(sides, SideKind::kSplit);
      meetings.push_back(Meet(split));
    }
  }
  if (wanted("latency")) {
    Side turns(sides, SideKind::kTurns);
    Print("start", {{"turns_s", turns.start_seconds()}});
    for (const int prompt : options.prompts) {
      Print("latency", Latency(sides, turns, prompt, options.rounds));
    }
  }
  if (wanted("meet") || wanted("split_latency") || wanted("gaps") || wanted("open")) {
    Side split(sides, SideKind::kSplit);
    Print("start", {{"split_s", split.start_seconds()}});
    meetings.push_back(Meet(split));
    if (wanted("meet")) Print("meet", MeetingsOf(meetings));
    if (wanted("split_latency")) {
      for (const int prompt : options.prompts) {
        Print("split_latency", SplitLatency(sides, split, prompt, options.rounds));
      }
    }
    if (wanted("gaps")) Print("gaps", Gaps(options, split));
    if (wanted("open")) PrintOpen("open", options, split);
  }
  if (wanted("gaps_unified") || wanted("open_unified")) {
    Side unified(sides, SideKind::kUnified);
    Print("start", {{"unified_s", unified.start_seconds()}});
    if (wanted("gaps_unified")) Print("gaps_unified", Gaps(options, unified));
    if (wanted("open_unified")) PrintOpen("open_unified", options, unified);
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options options;
  CLI::App app(
      "Compares prefill and decode workers with a unified worker, each in its own process");
  app.option_defaults()->always_capture_default();
  app.add_option("model", options.sides.model, "GGUF file or Hugging Face directory")->required();
  app.add_flag("--dummy", options.sides.dummy, "use random weights and a byte tokenizer");
  app.add_option("--prefill-device", options.sides.prefill_devices, "devices of prefill workers")
      ->delimiter(',');
  app.add_option("--decode-device", options.sides.decode_devices, "devices of decode workers")
      ->delimiter(',');
  app.add_option("--unified-device", options.sides.unified_devices, "devices of unified workers")
      ->delimiter(',');
  app.add_option("--prefill-tp",
                 options.sides.prefill_ranks.tensor_parallel,
                 "tensor ranks of each prefill worker, and of the unified worker of latency");
  app.add_option("--decode-tp",
                 options.sides.decode_ranks.tensor_parallel,
                 "tensor ranks of each decode worker");
  app.add_option("--unified-tp",
                 options.unified_tp,
                 "tensor ranks of each unified worker of gaps_unified and open_unified; 0: as "
                 "prefill workers");
  app.add_option("--transport", options.sides.transport, "KV transport to require; empty: any");
  app.add_option(
      "--log-folder", options.sides.log_folder, "folder for the processes' logs; empty: stderr");
  app.add_option("--worker-set", options.sides.worker_set, "a setting (name=value) of every worker")
      ->allow_extra_args(false);
  app.add_option("--decode-set",
                 options.sides.decode_set,
                 "a setting (name=value) of the decode worker in the cases of split workers")
      ->allow_extra_args(false);
  app.add_option("--cases",
                 options.cases,
                 "any of meet, latency, split_latency, gaps, gaps_unified, open, open_unified")
      ->delimiter(',');
  app.add_option("--prompts", options.prompts, "latency: prompt lengths in tokens")->delimiter(',');
  app.add_option("--rounds", options.rounds, "latency: requests of each kind")
      ->check(CLI::PositiveNumber);
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

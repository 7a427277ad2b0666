#include "bench/serving/latency.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/serving/load_client.h"
#include "bench/serving/spread.h"
#include "common/base/check.h"
#include "common/base/quantile.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Pause before each measured request. A GPU at its power limit is faster after a rest, so without
// the pause the time would depend on whether this GPU or the other one has just decoded. The pause
// is below 1 s, because after 1 s all gRPC threads of this client sleep for 100 ms at once.
constexpr auto kRest = std::chrono::milliseconds(700);
// The most requests for one of each kind: about 9 s, in which a pair of workers whose hand-offs
// failed twice is tried again.
constexpr int kMaxRequests = 12;

struct Sample {
  double ttft_ms = 0;
  double second_gap_ms = 0;
  double step_ms = 0;  // median gap between later tokens
  v1::Timings timings;
};

Sample Ask(Side& side, int prompt) {
  std::this_thread::sleep_for(kRest);
  const RequestTrace& trace = side.Finish(*side.client().Send(prompt, 12));
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

// Whether the workers of kTurns served the request in the way that is measured: at the first
// attempt, either the unified worker alone, or both with KV that was sent.
bool ServedAlone(const v1::Timings& timings) {
  return timings.attempts() == 1 && timings.transport().empty() &&
         timings.decode_worker() == kUnifiedWorker;
}

bool HandedOver(const v1::Timings& timings) {
  return timings.attempts() == 1 && timings.transfer_bytes() > 0 &&
         timings.prefill_worker() == kUnifiedWorker && timings.decode_worker() == kDecodeWorker;
}

std::string TextOf(const v1::Timings& timings) {
  return fmt::format("prefill on '{}', decode on '{}', {} bytes of KV over '{}', {} attempts",
                     timings.prefill_worker(),
                     timings.decode_worker(),
                     timings.transfer_bytes(),
                     timings.transport(),
                     timings.attempts());
}

// A request of each kind.
struct Round {
  Sample alone;
  Sample handed;
};

// Asks until there is a request of each kind. After a hand-off that failed, the router avoids the
// pair for some seconds, so this may take several requests. `in_order` gets the kind and the TTFT
// of each; a request of neither kind has the workers that served it as its kind.
Round AskBoth(Side& turns, int prompt, Json& in_order) {
  Round round;
  int alone = 0;
  int handed = 0;
  int asked = 0;
  std::string seen;
  while (alone == 0 || handed == 0) {
    BATON_CHECK(asked < kMaxRequests,
                "of {} requests of {} tokens, {} were handed over and {} were served alone; both "
                "must be at least 1. Their workers:{}\nThe cluster:{}",
                asked,
                prompt,
                handed,
                alone,
                seen,
                turns.Describe());
    Sample sample = Ask(turns, prompt);
    ++asked;
    const std::string text = TextOf(sample.timings);
    seen += "\n  " + text;
    if (HandedOver(sample.timings)) {
      in_order.push_back({"split", sample.ttft_ms});
      round.handed = std::move(sample);
      ++handed;
    } else if (ServedAlone(sample.timings)) {
      in_order.push_back({"unified", sample.ttft_ms});
      round.alone = std::move(sample);
      ++alone;
    } else {
      in_order.push_back({text, sample.ttft_ms});
    }
  }
  return round;
}

double TtftOf(const Sample& sample) {
  return sample.ttft_ms;
}
double AboveStepOf(const Sample& sample) {
  return sample.second_gap_ms - sample.step_ms;
}
double ComputeOf(const Sample& sample) {
  return sample.timings.prefill_ms();
}

// The figures of requests with a hand-off.
Json HandOffsOf(const SideOptions& options, const std::vector<Sample>& handed) {
  return {{"split_ttft_ms", Spread(Figures(handed, TtftOf))},
          {"split_compute_ms", Spread(Figures(handed, ComputeOf))},
          {"second_token_above_step_ms", Spread(Figures(handed, AboveStepOf))},
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

}  // namespace

Json Latency(const SideOptions& options, Side& turns, int prompt, int rounds) {
  Json in_order = Json::array();
  AskBoth(turns, prompt, in_order);  // a warm-up
  in_order.clear();
  std::vector<Sample> alone;
  std::vector<Sample> handed;
  for (int i = 0; i < rounds; ++i) {
    Round round = AskBoth(turns, prompt, in_order);
    alone.push_back(std::move(round.alone));
    handed.push_back(std::move(round.handed));
  }
  std::vector<double> above;
  for (size_t i = 0; i < alone.size(); ++i) above.push_back(handed[i].ttft_ms - alone[i].ttft_ms);
  Json result = HandOffsOf(options, handed);
  result.update({{"prompt", prompt},
                 {"rounds", rounds},
                 {"unified_ttft_ms", Spread(Figures(alone, TtftOf))},
                 {"ttft_above_unified_ms", Spread(above)},
                 {"ttft_in_order_ms", in_order},
                 {"requests_beyond_two_a_round", static_cast<int>(in_order.size()) - 2 * rounds},
                 {"unified_second_token_above_step_ms", Spread(Figures(alone, AboveStepOf))},
                 {"step_ms", Spread(Figures(handed, [](const Sample& s) { return s.step_ms; }))},
                 {"unified_compute_ms", Spread(Figures(alone, ComputeOf))}});
  return result;
}

Json SplitLatency(const SideOptions& options, Side& split, int prompt, int rounds) {
  Ask(split, prompt);
  std::vector<Sample> handed;
  for (int round = 0; round < rounds; ++round) handed.push_back(Ask(split, prompt));
  Json result = HandOffsOf(options, handed);
  result.update({{"prompt", prompt}, {"worker_set", options.worker_set}});
  return result;
}

}  // namespace baton

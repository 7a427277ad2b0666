#include "bench/serving/open_load.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/serving/spread.h"
#include "common/base/clock.h"
#include "common/base/quantile.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// A Poisson process with a fixed number of arrivals, in seconds.
std::vector<double> Arrivals(const OpenLoad& load) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> within(0, load.seconds);
  std::vector<double> arrivals(static_cast<size_t>(load.rate * load.seconds));
  for (double& at : arrivals) at = within(random);
  std::ranges::sort(arrivals);
  return arrivals;
}

// In hundredths, so that the figures of all requests stay readable.
double Rounded(double ms) {
  return std::round(ms * 100) / 100;
}

// The values below which 0, 1, …, 100 percent of all values are.
Json Percentiles(const std::vector<double>& values) {
  Json result = Json::array();
  for (int percent = 0; percent <= 100; ++percent) {
    result.push_back(Rounded(Quantile(values, percent / 100.0)));
  }
  return result;
}

// The figures of the requests that ended well.
struct Figures {
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> gaps;  // of all requests
  std::vector<double> worst;
  std::vector<double> worst_later;
  size_t alone = 0;  // requests whose prompt the decode worker computed
  size_t good = 0;
  Json each = Json::array();  // TTFT, p99 and largest ITL of each request

  void Add(const OpenLoad& load, const RequestTrace& trace) {
    ttft.push_back(trace.FirstMs());
    if (trace.timings.transport().empty()) ++alone;
    std::vector<double> own = {0};
    for (size_t i = 1; i < trace.tokens.size(); ++i) own.push_back(trace.GapMs(i));
    if (own.size() > 1) own.erase(own.begin());
    gaps.insert(gaps.end(), own.begin(), own.end());
    tpot.push_back(ToMillis(trace.tokens.back() - trace.tokens.front()) /
                   static_cast<double>(own.size()));
    worst.push_back(std::ranges::max(own));
    worst_later.push_back(own.size() > 1 ? *std::max_element(own.begin() + 1, own.end()) : 0);
    const double p99 = Quantile(own, 0.99);
    if (ttft.back() <= load.ttft_goal_ms && p99 <= load.itl_goal_ms) ++good;
    each.push_back({Rounded(ttft.back()), Rounded(p99), Rounded(worst.back())});
  }
};

}  // namespace

Json RunOpenLoad(const OpenLoad& load, const std::function<LoadCall*(int, int)>& send) {
  std::vector<LoadCall*> calls;
  const Time start = SteadyClock().Now();
  for (const double at : Arrivals(load)) {
    std::this_thread::sleep_until(start + FromSeconds(at));
    calls.push_back(send(load.prompt, load.output));
  }
  Figures figures;
  size_t failed = 0;
  std::string error;
  for (LoadCall* const call : calls) {
    const RequestTrace& trace = call->Await();
    if (trace.status.ok() && !trace.tokens.empty()) {
      figures.Add(load, trace);
      continue;
    }
    ++failed;
    error = trace.status.ToString();
    figures.each.push_back(nullptr);
  }
  const double took = ToSeconds(SteadyClock().Now() - start);
  const auto requests = static_cast<double>(calls.size());
  Json result = {{"prompt", load.prompt},
                 {"output", load.output},
                 {"rate", load.rate},
                 {"seconds", load.seconds},
                 {"seconds_to_last_token", took},
                 {"arrivals", "poisson"},
                 {"requests", calls.size()},
                 {"failed", failed},
                 {"served_alone", figures.alone},
                 {"ttft_goal_ms", load.ttft_goal_ms},
                 {"itl_p99_goal_ms", load.itl_goal_ms},
                 {"good_share", static_cast<double>(figures.good) / std::max(requests, 1.0)}};
  if (failed > 0) result["last_error"] = error;
  if (figures.ttft.empty()) return result;
  result["ttft_ms"] = Spread(figures.ttft);
  result["tpot_ms"] = Spread(figures.tpot);
  result["itl_ms"] = Spread(figures.gaps);
  result["worst_gap_ms"] = Spread(figures.worst);
  result["worst_gap_after_second_token_ms"] = Spread(figures.worst_later);
  result["ttft_percentiles_ms"] = Percentiles(figures.ttft);
  result["itl_percentiles_ms"] = Percentiles(figures.gaps);
  result["ttft_itl_p99_itl_max_ms"] = figures.each;
  return result;
}

}  // namespace baton

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace baton {

// Handles to one time series. Cheap to copy, thread-safe, valid while their registry lives.
class Counter final {
 public:
  void Add(double amount = 1);
  // Raises the counter to `total`, which its owner counts elsewhere; a lower total changes nothing.
  // For AddUpdate functions, one of which sets the counter.
  void RaiseTo(double total);
  double value() const;

 private:
  friend class MetricsRegistry;
  explicit Counter(prometheus::Counter* series) : series_(series) {}
  prometheus::Counter* series_;
};

class Gauge final {
 public:
  void Set(double value);
  void Add(double amount);
  double value() const;

 private:
  friend class MetricsRegistry;
  explicit Gauge(prometheus::Gauge* series) : series_(series) {}
  prometheus::Gauge* series_;
};

class Histogram final {
 public:
  void Observe(double value);

 private:
  friend class MetricsRegistry;
  explicit Histogram(prometheus::Histogram* series) : series_(series) {}
  prometheus::Histogram* series_;
};

using MetricLabels = std::map<std::string, std::string>;

// Upper bounds in seconds, about three a decade. From 1 ms to 60 s: parts of a request.
std::vector<double> LatencyBuckets();
// From 0.1 ms to 1 s: steps, transfers, time per token.
std::vector<double> ShortLatencyBuckets();
// From 0.5 ms to 10 s: time between two tokens, during which a worker may be lost.
std::vector<double> GapBuckets();
// From 50 ms to 600 s: whole requests.
std::vector<double> RequestBuckets();

// All metrics of a process, in Prometheus' data model. Thread-safe. Each module declares its series
// in one class `*_probe`, and nowhere else, so that a module's metric names can be read in one
// file. Asking again for a name with the same labels gives the same series. Names follow
// Prometheus' rules: counters, and nothing else, end in _total; units are base units (seconds,
// bytes). A name against the rules, or with two kinds or two help texts, breaks an invariant.
class MetricsRegistry final {
 public:
  MetricsRegistry();
  ~MetricsRegistry();

  Counter AddCounter(const std::string& name,
                     const std::string& help,
                     const MetricLabels& labels = {});
  Gauge AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  Histogram AddHistogram(const std::string& name,
                         const std::string& help,
                         const std::vector<double>& buckets,
                         const MetricLabels& labels = {});

  // Called before each Serialize(), on its thread: the place to set gauges from a module's Stats().
  // `update` stays callable until RemoveUpdate(key), which waits for a call in progress.
  using UpdateKey = int;
  UpdateKey AddUpdate(std::function<void()> update);
  void RemoveUpdate(UpdateKey key);

  // Everything in the text exposition format
  // (https://prometheus.io/docs/instrumenting/exposition_formats/).
  std::string Serialize();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

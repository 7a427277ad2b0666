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

// Counter, Gauge and Histogram are handles to one time series. Cheap to copy, thread-safe, valid
// while their registry lives.
class Counter final {
 public:
  void Add(double amount = 1);
  // Raises the counter to `total`, a number that its owner counts elsewhere; a lower total changes
  // nothing. To be called only by the one AddUpdate function that sets this counter.
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

// Buckets for histograms of durations: upper bounds in seconds, about three per decade.
// 1 ms to 60 s, for parts of a request.
std::vector<double> LatencyBuckets();
// 0.1 ms to 1 s, for steps, transfers and time per token.
std::vector<double> ShortLatencyBuckets();
// 0.5 ms to 10 s, for inter-token latency, which can include the loss of a worker.
std::vector<double> GapBuckets();
// 50 ms to 600 s, for whole requests.
std::vector<double> RequestBuckets();

// All metrics of a process, in Prometheus' data model. Thread-safe. Each module declares its series
// in one class `*_probe`, and nowhere else, so that a module's metric names can be read in one
// file. Adding a name again with the same labels returns the same series. Names follow Prometheus'
// rules: counters, and no other metrics, end in _total; units are base units (seconds, bytes). A
// name that breaks these rules, or has two kinds or two help texts, fails a BATON_CHECK.
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

  // Registers a function that each Serialize() first calls, on its thread: the place to set gauges
  // from a module's Stats(). `update` must stay callable until RemoveUpdate(key) has returned,
  // which waits for a call in progress.
  using UpdateKey = int;
  UpdateKey AddUpdate(std::function<void()> update);
  void RemoveUpdate(UpdateKey key);

  // All series in the text exposition format
  // (https://prometheus.io/docs/instrumenting/exposition_formats/).
  std::string Serialize();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

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

// Upper bounds in seconds, from 1 ms to 60 s, about three a decade: latencies of requests.
std::vector<double> LatencyBuckets();
// From 0.1 ms to 1 s: steps, transfers, time per token.
std::vector<double> ShortLatencyBuckets();

// All metrics of a process, in Prometheus' data model. Thread-safe. Each module declares its series
// in one class `*_probe`, and nowhere else, so that a module's metric names can be read in one
// file. Asking again for a name with the same labels gives the same series; a name used for two
// kinds of metric, or one that Prometheus does not allow, breaks an invariant.
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

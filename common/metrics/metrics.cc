#include "common/metrics/metrics.h"

#include <array>
#include <mutex>
#include <string_view>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr std::array<std::string_view, 12> kDerivedUnits = {"ms",
                                                            "us",
                                                            "ns",
                                                            "milliseconds",
                                                            "microseconds",
                                                            "minutes",
                                                            "hours",
                                                            "kb",
                                                            "mb",
                                                            "mib",
                                                            "kilobytes",
                                                            "megabytes"};

struct Family {
  char kind;
  std::string help;
};

// Checks what promtool's `check metrics` checks in a name, and that its unit is a base unit.
void CheckName(const std::string& name, char kind, const std::string& help) {
  BATON_CHECK(!help.empty(), "metric {} has no help text", name);
  BATON_CHECK(name.ends_with("_total") == (kind == 'c'),
              "metric {}: counters, and nothing else, end in _total",
              name);
  const std::string words = name + "_";
  for (const std::string_view unit : kDerivedUnits) {
    BATON_CHECK(words.find(fmt::format("_{}_", unit)) == std::string::npos,
                "metric {}: {} is not a base unit; seconds and bytes are",
                name,
                unit);
  }
}

}  // namespace

void Counter::Add(double amount) {
  series_->Increment(amount);
}
double Counter::value() const {
  return series_->Value();
}
void Counter::RaiseTo(double total) {
  const double now = value();
  if (total > now) Add(total - now);
}
void Gauge::Set(double value) {
  series_->Set(value);
}
void Gauge::Add(double amount) {
  series_->Increment(amount);
}
double Gauge::value() const {
  return series_->Value();
}
void Histogram::Observe(double value) {
  series_->Observe(value);
}

std::vector<double> LatencyBuckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60};
}
std::vector<double> ShortLatencyBuckets() {
  return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};
}
std::vector<double> GapBuckets() {
  return {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
}
std::vector<double> RequestBuckets() {
  return {0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600};
}

struct MetricsRegistry::Impl {
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  std::mutex mutex;  // guards the families and the creation of series
  std::map<std::string, Family> families;
  std::mutex update_mutex;  // guards `updates` and `next_key`; never locked under `mutex`
  std::map<UpdateKey, std::function<void()>> updates;
  UpdateKey next_key = 1;

  void CheckFamily(const std::string& name, char kind, const std::string& help) {
    const auto [known, inserted] = families.emplace(name, Family{kind, help});
    if (inserted) return CheckName(name, kind, help);
    BATON_CHECK(known->second.kind == kind, "metric {} is declared as two kinds", name);
    BATON_CHECK(known->second.help == help,
                "metric {} has two meanings: \"{}\" and \"{}\"",
                name,
                known->second.help,
                help);
  }
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter MetricsRegistry::AddCounter(const std::string& name,
                                    const std::string& help,
                                    const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  impl_->CheckFamily(name, 'c', help);
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry);
  return Counter(&family.Add(labels));
}

Gauge MetricsRegistry::AddGauge(const std::string& name,
                                const std::string& help,
                                const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  impl_->CheckFamily(name, 'g', help);
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry);
  return Gauge(&family.Add(labels));
}

Histogram MetricsRegistry::AddHistogram(const std::string& name,
                                        const std::string& help,
                                        const std::vector<double>& buckets,
                                        const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  impl_->CheckFamily(name, 'h', help);
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry);
  return Histogram(&family.Add(labels, buckets));
}

MetricsRegistry::UpdateKey MetricsRegistry::AddUpdate(std::function<void()> update) {
  std::lock_guard lock(impl_->update_mutex);
  impl_->updates.emplace(impl_->next_key, std::move(update));
  return impl_->next_key++;
}

void MetricsRegistry::RemoveUpdate(UpdateKey key) {
  std::lock_guard lock(impl_->update_mutex);
  impl_->updates.erase(key);
}

std::string MetricsRegistry::Serialize() {
  std::lock_guard lock(impl_->update_mutex);
  for (const auto& [key, update] : impl_->updates) update();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace baton

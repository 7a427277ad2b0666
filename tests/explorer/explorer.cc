#include "tests/explorer/explorer.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

namespace baton {
namespace {

// The schedules of one exploration.
class Explorer final {
 public:
  explicit Explorer(Scope scope) : scope_(scope) {}

  // Runs the world to its end, and before each step also every schedule that deviates there.
  void RunAll(HandoffWorld world, int deviations) {
    while (!world.over() && outcome_.violation.empty()) {
      if (deviations > 0) Branch(world, deviations);
      Step(world, Deviation::kNone);
    }
    Count(world);
  }

  void RunRandom(HandoffWorld world, uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::array<uint64_t, 4> rarities = {4, 10, 25, 60};
    const uint64_t one_in = rarities.at(seed % rarities.size());
    schedule_.clear();
    while (!world.over() && schedule_.size() < kMaxDeviations) {
      Deviation deviation = Deviation::kNone;
      if (random() % one_in == 0) {
        const std::vector<Deviation> possible = world.Deviations(scope_);
        if (!possible.empty()) deviation = possible[random() % possible.size()];
      }
      if (deviation != Deviation::kNone) schedule_.push_back({world.steps(), deviation});
      Step(world, deviation);
    }
    RunAll(std::move(world), 0);
  }

  bool failed() const { return !outcome_.violation.empty(); }
  Exploration Take() {
    outcome_.traces = traces_.size();
    outcome_.states = states_.size() * kStatesPerSample;
    return std::move(outcome_);
  }

 private:
  // Afterwards the world runs without deviations, so that every schedule ends.
  static constexpr size_t kMaxDeviations = 40;

  // The set of all states would not fit into memory: every 64th hash is kept.
  static constexpr uint64_t kStatesPerSample = 64;

  void Step(HandoffWorld& world, Deviation deviation) {
    world.Step(deviation);
    ++outcome_.steps;
    const uint64_t state = world.state();
    if (state % kStatesPerSample == 0) states_.insert(state);
  }

  void Branch(const HandoffWorld& world, int deviations) {
    for (const Deviation deviation : world.Deviations(scope_)) {
      if (failed()) return;
      HandoffWorld other = world;
      schedule_.push_back({world.steps(), deviation});
      Step(other, deviation);
      RunAll(std::move(other), deviations - 1);
      schedule_.pop_back();
    }
  }

  void Count(const HandoffWorld& world) {
    if (failed()) return;
    ++outcome_.schedules;
    traces_.insert(world.trace());
    outcome_.served += world.served();
    outcome_.committed += world.committed();
    outcome_.redirects += world.redirects();
    outcome_.quarantined += world.quarantined();
    if (world.violation().empty()) return;
    outcome_.violation = world.violation();
    outcome_.failing = schedule_;
  }

  const Scope scope_;
  Exploration outcome_;
  Schedule schedule_;
  absl::flat_hash_set<uint64_t> traces_;
  absl::flat_hash_set<uint64_t> states_;
};

}  // namespace

std::string ToText(const Schedule& schedule) {
  std::string text;
  for (const Choice& choice : schedule) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", choice.step, Name(choice.deviation));
  }
  return text;
}

StatusOr<Schedule> ParseSchedule(std::string_view text) {
  Schedule schedule;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits(':', 1));
    uint64_t step = 0;
    const auto deviation = DeviationOf({parts.second.data(), parts.second.size()});
    if (!absl::SimpleAtoi(parts.first, &step) || !deviation.has_value()) {
      return InvalidArgument("'{}' is not STEP:DEVIATION, for example 17:drop", std::string(word));
    }
    schedule.push_back({step, *deviation});
  }
  return schedule;
}

Exploration ExploreAll(const HandoffWorld& world, int deviations, Scope scope) {
  Explorer explorer(scope);
  explorer.RunAll(world, deviations);
  return explorer.Take();
}

Exploration ExploreRandom(const HandoffWorld& world, uint64_t first_seed, uint64_t count) {
  Explorer explorer(Scope::kAll);
  for (uint64_t seed = first_seed; seed < first_seed + count && !explorer.failed(); ++seed) {
    explorer.RunRandom(world, seed);
  }
  return explorer.Take();
}

std::string Replay(HandoffWorld world, const Schedule& schedule) {
  size_t next = 0;
  while (!world.over()) {
    Deviation deviation = Deviation::kNone;
    if (next < schedule.size() && schedule[next].step == world.steps()) {
      deviation = schedule[next++].deviation;
    }
    world.Step(deviation);
  }
  return world.violation();
}

}  // namespace baton

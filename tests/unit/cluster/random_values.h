#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/cluster/commands.h"
#include "common/cluster/reports.h"
#include "common/cluster/worker_info.h"

namespace baton {

// Random values of everything that routers and workers exchange. Every field is set, and every
// value survives the wire: durations are whole microseconds, deadlines whole milliseconds.
class RandomValues final {
 public:
  explicit RandomValues(uint64_t seed) : random_(seed) {}

  WorkerInfo Info();
  Welcome AnyWelcome();
  // Every member has at least one entry.
  WorkerReport Report();
  // At least one command of each kind, in the order in which CommandsFromProto returns them.
  // `now` is the arrival of the requests.
  std::vector<WorkerCommand> Commands(Time now);

 private:
  int64_t Between(int64_t low, int64_t high);
  int32_t Count() { return static_cast<int32_t>(Between(1, 1 << 20)); }
  uint64_t Any() { return random_() | 1; }
  float Float() { return static_cast<float>(Between(1, 1'000'000)) / 1024; }
  double Double() { return static_cast<double>(Between(1, 1'000'000'000)) / 1000; }
  bool Bool() { return (random_() & 1) != 0; }
  std::string Text();
  void Set(int32_t& value) { value = Count(); }
  void Set(std::string& value) { value = Text(); }
  Duration Micros() { return std::chrono::microseconds(Between(1, 1'000'000'000)); }
  Hash128 Hash() { return {Any(), Any()}; }
  std::vector<TokenId> Tokens();
  // A retryable flag that agrees with the code, and a code other than OK.
  Status Error();
  Peer AnyPeer();
  SamplingParams Sampling();
  DispatchCommand Dispatch(RequestKind kind, Time now);
  WorkerLoad Load();

  std::mt19937_64 random_;
};

}  // namespace baton

#pragma once

#include <xgrammar/grammar.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/container/node_hash_map.h>

#include "common/grammar/xgrammar/token_trie.h"

namespace baton {

// A deterministic automaton over bytes, made as far as it is used, of what may follow a state of a
// rule of a grammar, whatever surrounds the rule. A configuration is a set of positions: a state of
// a rule, and the stack of the rules that called it since the start. Below the stack it is not
// known who called the first rule: where that rule ends, all its callers are possible. A position
// that was reached so is possible; the others are certain.
//
// Sets that grow too large become vague: anything is possible. So answers are never wrong. Not
// thread-safe. The grammar must be optimised, and have no edges of whole tokens and no lazy rules.
class RuleAutomaton final {
 public:
  using Id = int32_t;
  // Nothing can follow: no position allows the bytes.
  static constexpr Id kDead = 0;

  // What is known of a rule's caller: a state that repeats the rule, and has done so `count` times.
  // Without a caller, rule is -1.
  struct Repetition {
    int32_t rule = -1;
    int32_t state = 0;
    int32_t count = 0;
    auto operator<=>(const Repetition&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Repetition& v) {
      return H::combine(std::move(h), v.rule, v.state, v.count);
    }
  };

  explicit RuleAutomaton(const xgrammar::Grammar& grammar);

  // The configuration of a scannable state of the rule's own automaton. Only the edges of bytes of
  // the state count.
  Id Start(int32_t rule, int32_t state, const Repetition& caller);
  // The configuration after `byte`.
  Id Next(Id id, uint8_t byte) {
    const int16_t known = transitions_[static_cast<size_t>(id)][byte];
    return known >= 0 ? known : Compute(id, byte);
  }
  // Whether the bytes that led here are certainly allowed. When not, they are possible.
  bool certain(Id id) const { return certain_[static_cast<size_t>(id)] != 0; }
  // Whether all bytes are possible from here on, and none is certain.
  static bool anything(Id id) { return id == kAnything || id == kAnythingAfterCertain; }
  // The characters of a class that may follow a configuration.
  struct Text {
    int characters = -1;  // every text of up to this many is certainly allowed
    bool most = false;    // no text with more characters is possible
    Id next = -1;         // all characters lead to this configuration; -1: not known
  };
  // Not beyond `limit` characters, which are the same in all calls for a class.
  Text TextAfter(Id id, TextClass text_class, int limit);

  // The positions and edges visited so far, a measure of time: 5 to 20 ns each.
  int64_t work() const { return work_; }
  // From now on new configurations are "anything" when work() exceeds `limit`.
  void LimitWork(int64_t limit) { work_limit_ = limit; }
  // Approximate memory, in bytes.
  size_t bytes() const;
  // Forgets all configurations when their memory is more than half of its limit. Ends their ids.
  void MakeRoom();

 private:
  static constexpr Id kAnything = 1;
  static constexpr Id kAnythingAfterCertain = 2;
  // A stack: a frame, or, when negative, the unknown callers of the rule -1 - stack.
  using Stack = int32_t;
  static constexpr int32_t kNoCount = -2;
  static constexpr int32_t kUnknownCount = -1;

  struct Position {
    int32_t rule = 0;
    int32_t state = 0;
    int32_t count = 0;  // in a state that repeats a rule: the repetitions that are complete
    Stack stack = 0;
    bool certain = true;
    auto operator<=>(const Position&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Position& v) {
      return H::combine(std::move(h), v.rule, v.state, v.count, v.stack, v.certain);
    }
  };
  // Where a called rule returns to.
  struct Frame {
    int32_t rule = 0;
    int32_t state = 0;
    int32_t count = kNoCount;  // else `state` repeats the called rule: the complete repetitions
    Stack below = 0;
    bool operator==(const Frame&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Frame& v) {
      return H::combine(std::move(h), v.rule, v.state, v.count, v.below);
    }
  };
  struct Config {
    std::vector<Position> positions;  // sorted; only states with edges of bytes
    bool certain = false;
    bool vague = false;  // anything is possible, beside what `positions` allow
    bool dead = false;
    bool operator==(const Config&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Config& v) {
      return H::combine(std::move(h), v.positions, v.certain, v.vague, v.dead);
    }
  };
  // A position that was reached by a byte, or from another one without a byte. `fresh`: the number
  // of frames on top of its stack that were pushed since the byte.
  struct Reached {
    Position position;
    int fresh = 0;
  };
  struct Caller {
    int32_t rule = 0;
    int32_t state = 0;  // behind the call, or the state that repeats the rule
    bool repeats = false;
    auto operator<=>(const Caller&) const = default;
  };

  void FindCallers();
  Id Compute(Id id, uint8_t byte);
  Id Intern(Config config);
  Stack Push(const Frame& frame);
  void Reach(const Position& position, int fresh);
  void Expand(const Reached& from);
  void Call(const Reached& from, int32_t rule, int32_t behind);
  void Repeat(const Reached& from, int32_t rule, int32_t behind, int32_t least, int32_t most);
  void EndRule(const Position& position);
  void ReturnTo(const Frame& frame, bool certain);
  bool IsFreshCall(const Reached& from, const Frame& frame) const;
  bool IsEnd(int32_t rule, int32_t state) const;
  int32_t StartOf(int32_t rule) const;
  Config Closed(bool certain, bool vague);
  bool AllAllow(const std::vector<Id>& from, uint8_t low, uint8_t high, std::vector<Id>& out);
  bool AfterOne(Id id, TextClass text_class, std::vector<Id>& out);
  bool AfterEach(Id id, TextClass text_class, std::vector<Id>& out);
  bool NothingAfter(Id id, TextClass text_class);
  void Clear();

  const xgrammar::Grammar grammar_;
  std::vector<int32_t> first_states_;         // of each rule, in the automaton of the grammar
  std::vector<bool> nullable_;                // of each rule: whether it may be empty
  std::vector<std::vector<Caller>> callers_;  // of each rule

  absl::node_hash_map<Config, Id> ids_;
  std::vector<const Config*> configs_;
  std::vector<std::array<int16_t, 256>> transitions_;  // of each configuration; -1: not known
  std::vector<uint8_t> certain_;                       // of each configuration
  // Of each configuration, what TextAfter found; -1 characters: not known.
  std::vector<std::array<Text, kTextClasses>> text_after_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<Frame, Stack> frame_ids_;
  size_t positions_ = 0;  // in all configurations
  int64_t work_ = 0;
  int64_t work_limit_ = INT64_MAX;

  // Used by Compute, while positions are followed that need no byte.
  std::vector<Reached> reached_;
  absl::flat_hash_set<std::pair<Position, bool>> seen_;
  bool overflow_ = false;
};

}  // namespace baton

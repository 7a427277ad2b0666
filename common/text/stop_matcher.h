#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/status.h"

namespace baton {

// A request's stop strings, prepared for matching (Aho and Corasick 1975). Immutable, so
// thread-safe.
class StopStrings final {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // of all strings together

  // InvalidArgument for an empty string, a string that is not UTF-8, or more than kMaxBytes in all.
  static StatusOr<StopStrings> Create(std::span<const std::string> strings);

  bool empty() const { return nodes_.size() == 1; }

 private:
  friend class StopMatcher;

  // A state of the automaton: the text so far ends with the first `depth` bytes of a stop string,
  // and with no longer beginning of one.
  struct Node {
    uint32_t failure = 0;  // the node of the longest proper suffix
    uint32_t depth = 0;
    uint32_t matched = 0;  // length of the longest stop string that ends here, or 0
    int32_t string = -1;   // index of that stop string, or -1
  };

  StopStrings() : nodes_(1) {}
  uint32_t Next(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
};

// Searches one stream of text for stop strings. Holds back text that may be the start of a stop
// string, so that a stop string is never shown in part. Stops at the string that ends first; of
// several that end together, at the longest. Amortised constant time per byte for any number of
// strings. Not thread-safe.
class StopMatcher final {
 public:
  // `include_stop`: the returned text includes the stop string.
  StopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop)
      : strings_(std::move(strings)), include_stop_(include_stop) {}

  // Adds `text` and returns the text that can be shown now; both have whole characters. Returns
  // nothing more once stopped. Without `may_stop`, stop strings that end in `text` are ignored.
  std::string Append(std::string_view text, bool may_stop = true);
  // The text that is held back. No stop string goes on behind it.
  std::string Flush();

  bool stopped() const { return stop_index_ >= 0; }
  // The index of the string that was found, or -1.
  int stop_index() const { return stop_index_; }

 private:
  std::shared_ptr<const StopStrings> strings_;
  bool include_stop_;
  uint32_t node_ = 0;
  int stop_index_ = -1;
  std::string held_back_;
};

}  // namespace baton

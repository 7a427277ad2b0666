#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "common/base/clock.h"

namespace baton {

// Notices that a file has changed, by its identity, size and time of modification. Looks at most
// once in each interval. A file that is replaced by a rename, or through a symbolic link as
// Kubernetes does, counts as changed. Not thread-safe.
class FileWatch final {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  explicit FileWatch(std::string path, Duration interval = kInterval)
      : path_(std::move(path)), interval_(interval), state_(Look()) {}

  // Whether the file has changed since the last call that returned true, or since the construction.
  bool Changed(Time now);
  const std::string& path() const { return path_; }

 private:
  struct State {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = -1;  // -1: the file does not exist
    int64_t modified_ns = 0;
    bool operator==(const State&) const = default;
  };

  State Look() const;

  const std::string path_;
  const Duration interval_;
  State state_;
  Time next_look_{};
};

}  // namespace baton

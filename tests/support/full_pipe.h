#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "tests/support/temporary_folder.h"

namespace baton {

// A named pipe that is full until it is read: the stdout or stderr of a process that nobody reads.
class FullPipe final {
 public:
  FullPipe();

  // Whoever opens it for writing blocks in its first write.
  const std::string& path() const { return path_; }
  // Makes room for what others write.
  void ReadFilling();
  // What was written behind the filling: reads until `marker` is in it, or the limit passes.
  // Returns all so far.
  const std::string& ReadUntil(const std::string& marker,
                               Duration limit = std::chrono::seconds(30));

 private:
  // Reads what is there; false when nothing comes within the limit.
  bool ReadOnce(Duration limit);

  const TemporaryFolder folder_;
  const std::string path_;
  UniqueFd fd_;
  size_t filling_ = 0;  // bytes of it that are still to be read
  std::string text_;
};

}  // namespace baton

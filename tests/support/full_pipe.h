#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "tests/support/temporary_folder.h"

namespace baton {

// A named pipe that is full until a test reads from it. It stands for the stdout or stderr of a
// process whose output nobody reads.
class FullPipe final {
 public:
  FullPipe();

  // A process that opens this path for writing blocks in its first write.
  const std::string& path() const { return path_; }
  // Reads the bytes that filled the pipe, so that writers can proceed.
  void ReadFilling();
  // Reads what processes have written after the filling, until the text contains `marker` or the
  // limit passes. Returns all text read so far.
  const std::string& ReadUntil(const std::string& marker,
                               Duration limit = std::chrono::seconds(30));

 private:
  // Reads the available bytes. Returns false when no byte arrives within the limit.
  bool ReadOnce(Duration limit);

  const TemporaryFolder folder_;
  const std::string path_;
  UniqueFd fd_;
  size_t filling_ = 0;  // bytes of the filling that are still in the pipe
  std::string text_;
};

}  // namespace baton

#pragma once

#include <string>

#include "tests/support/temporary_folder.h"

namespace baton {

// While an object of this class lives, a file receives what the process writes to standard error.
// Unlike gtest's CaptureStderr, the text so far can be read again and again, and no line that is
// written meanwhile is lost.
class CapturedStderr final {
 public:
  CapturedStderr();
  ~CapturedStderr();
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  // All that was written since the constructor.
  std::string Text() const;

 private:
  TemporaryFolder folder_;
  std::string path_;
  int original_;  // a duplicate of the descriptor that standard error had
};

}  // namespace baton

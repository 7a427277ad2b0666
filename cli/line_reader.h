#pragma once

#include <memory>
#include <string>

namespace baton {

// Reads lines from the user. On a terminal, with line editing and a history that is kept in a file;
// else without. For the main thread.
class LineReader final {
 public:
  enum class Outcome { kLine, kInterrupted, kEnd };

  // `history_file` is read now and written after each line. Errors with the file are ignored.
  explicit LineReader(const std::string& history_file);
  ~LineReader();

  // Returns kInterrupted after Ctrl-C (the line is dropped), kEnd after Ctrl-D or at end of input.
  Outcome Read(const std::string& prompt, std::string& line);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null when stdin or stdout is not a terminal
};

}  // namespace baton

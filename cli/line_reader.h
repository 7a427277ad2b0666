#pragma once

#include <memory>
#include <string>

namespace baton {

// Reads lines from the user: with editing and a history kept in a file when stdin is a terminal,
// plainly when it is not. For the main thread.
class LineReader final {
 public:
  enum class Outcome { kLine, kInterrupted, kEnd };

  // `history_file`: read now, written as lines come; problems with it are ignored.
  explicit LineReader(const std::string& history_file);
  ~LineReader();

  // kInterrupted after Ctrl-C (the line is dropped), kEnd after Ctrl-D or at the end of input.
  Outcome Read(const std::string& prompt, std::string& line);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null: not a terminal
};

}  // namespace baton

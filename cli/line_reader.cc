#include "cli/line_reader.h"

#include <histedit.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <filesystem>
#include <iostream>

namespace baton {
namespace {

constexpr int kHistoryLines = 1000;
constexpr const char* kInterrupt = "\x03";

}  // namespace

struct LineReader::Terminal {
  explicit Terminal(const std::string& file) : history_file(file) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
    edit = ::el_init("baton", stdin, stdout, stderr);
    history = ::history_init();
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::history(history, &event, H_LOAD, history_file.c_str());
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(edit, EL_PROMPT, &Terminal::Prompt);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_HIST, ::history, history);
    ::el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Ctrl-C replaces the line by kInterrupt: go to the start, kill, insert a quoted Ctrl-C,
    // accept.
    ::el_set(edit, EL_BIND, "-s", "^C", "^A^K^V^C^J", nullptr);
  }
  ~Terminal() {
    ::el_set(edit, EL_BIND, "-r", "^C", nullptr);  // el_end would leak its string
    ::history_end(history);
    ::el_end(edit);
  }
  Terminal(const Terminal&) = delete;

  // Sets up the terminal before the prompt is printed, so that libedit edits everything that is
  // typed after it. Ctrl-C becomes an ordinary key: as a signal it could arrive before the read
  // that it should interrupt, and the terminal would discard output that was just printed. (libedit
  // undoes its own "intr=", so VINTR is disabled here.)
  void Prepare() const {
    ::el_set(edit, EL_PREP_TERM, 1);
    termios settings{};
    if (::tcgetattr(STDIN_FILENO, &settings) != 0) return;
    settings.c_cc[VINTR] = _POSIX_VDISABLE;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
  }

  static char* Prompt(EditLine* edit) {
    void* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<Terminal*>(self)->prompt.data();
  }

  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string history_file;
  std::string prompt;
};

LineReader::LineReader(const std::string& history_file) {
  if (!::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO)) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(history_file).parent_path(), ignored);
  terminal_ = std::make_unique<Terminal>(history_file);
}

LineReader::~LineReader() = default;

LineReader::Outcome LineReader::Read(const std::string& prompt, std::string& line) {
  if (!terminal_) {
    return std::getline(std::cin, line) ? Outcome::kLine : Outcome::kEnd;
  }
  terminal_->prompt = prompt;
  terminal_->Prepare();
  int count = 0;
  const char* text = ::el_gets(terminal_->edit, &count);
  if (text == nullptr || count <= 0) {
    ::el_reset(terminal_->edit);
    std::cout << std::endl;
    return Outcome::kEnd;
  }
  line.assign(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (line == kInterrupt) return Outcome::kInterrupted;
  if (!line.empty()) {
    ::history(terminal_->history, &terminal_->event, H_ENTER, line.c_str());
    ::history(terminal_->history, &terminal_->event, H_SAVE, terminal_->history_file.c_str());
  }
  return Outcome::kLine;
}

}  // namespace baton

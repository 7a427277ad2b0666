#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace spdlog {
class logger;
}

namespace baton {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// "trace", "debug", "info", "warning", "error" or "off"; InvalidArgument for anything else.
StatusOr<LogLevel> ParseLogLevel(std::string_view name);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::map<std::string, LogLevel> modules;  // module → its own level
};

// Applies to all loggers, those made already and later ones. Thread-safe.
void ConfigureLogging(const LogOptions& options);

// Waits until what was logged so far is on stderr; false when `limit` passes first. Needed before
// _exit; exit() and FlushLogOnCrash do it by themselves.
bool FlushLog(Duration limit);

// Lets SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT wait (a second at most) until the log is on
// stderr, and do then what they did; logs an uncaught exception. For the start of a process.
void FlushLogOnCrash();

// Writes `text`, as it is, to stderr, in its place among the log's lines. Never blocks.
void WriteStderr(std::string text);

// Messages that never reached stderr, because nobody read it or it could not be written.
uint64_t DroppedLogMessages();

// The log of one module: lines "2026-01-02T03:04:05.678Z info router: text" on stderr, written
// whole by a thread of the log. Logging never blocks: when stderr is a full pipe, the oldest of 1
// MiB of messages are dropped, and a line says how many. Cheap to copy and to construct again;
// thread-safe. A line about a request names its id. Nothing per token above trace.
class Logger final {
 public:
  explicit Logger(std::string_view module);

  bool Enabled(LogLevel level) const;
  // Writes `text`, whatever the level says.
  void Write(LogLevel level, std::string_view text) const;

  template <class... Args>
  void Trace(fmt::format_string<Args...> format, Args&&... args) const {
    Format(LogLevel::kTrace, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void Debug(fmt::format_string<Args...> format, Args&&... args) const {
    Format(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) const {
    Format(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void Warning(fmt::format_string<Args...> format, Args&&... args) const {
    Format(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) const {
    Format(LogLevel::kError, format, std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  void Format(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (Enabled(level)) Write(level, fmt::format(format, std::forward<Args>(args)...));
  }

  spdlog::logger* logger_;  // lives as long as the process
};

}  // namespace baton

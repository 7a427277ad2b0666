#pragma once

#include <atomic>
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

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error" or "off"; InvalidArgument for anything else.
StatusOr<LogLevel> ParseLogLevel(std::string_view name);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::map<std::string, LogLevel> modules;  // levels of single modules, which replace `level`
};

// Sets the levels of all loggers, existing and later ones. Thread-safe.
void ConfigureLogging(const LogOptions& options);

// Waits until the messages logged so far are written to stderr or dropped. False when `limit`
// passes first. Needed before _exit; exit() and the handlers of FlushLogOnCrash flush the log
// themselves.
bool FlushLog(Duration limit);

// Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT that wait, at most 1 s, until
// the log is written to stderr, and then run the previous action of the signal. Also logs an
// uncaught exception. To be called at the start of a process.
void FlushLogOnCrash();

// Writes `text` unchanged to stderr, in order with the lines of the log. Never blocks.
void WriteStderr(std::string text);

// The number of messages that were not written to stderr, because nobody read it or because the
// write failed.
uint64_t DroppedLogMessages();

// The log of one module. The log's thread writes whole lines, such as
// "2026-01-02T03:04:05.678Z info router: text", to stderr. Logging never blocks: while stderr is a
// full pipe, up to 1 MiB of messages is queued and the oldest are dropped; a line then states how
// many. Thread-safe. A line about a request states the request's id. Nothing is logged for
// each token.
//
// Each file declares its own logger in its anonymous namespace: const Logger kLog("router");
// Such a constant is initialised at compile time, so that static constructors may use it, too.
class Logger final {
 public:
  // `module` outlives the logger; usually it is a literal.
  constexpr explicit Logger(std::string_view module) : module_(module) {}

  bool Enabled(LogLevel level) const;
  // Logs `text` if `level` is enabled.
  void Write(LogLevel level, std::string_view text) const;

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

  spdlog::logger& Get() const;

  const std::string_view module_;
  mutable std::atomic<spdlog::logger*> logger_{nullptr};  // set by the first use
};

}  // namespace baton

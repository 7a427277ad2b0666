#include "common/log/log.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "common/log/line_writer.h"

namespace baton {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{1} << 20;
constexpr Duration kEndLimit = std::chrono::seconds(1);  // for the last lines of a process

constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevelNames = {{
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError},
    {"off", LogLevel::kOff},
}};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

std::unique_ptr<spdlog::formatter> MakeFormatter() {
  return std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v",
                                                     spdlog::pattern_time_type::utc);
}

std::string FormatLine(spdlog::formatter& formatter, const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter.format(message, line);
  return fmt::to_string(line);
}

std::string DropNotice(uint64_t count) {
  return FormatLine(
      *MakeFormatter(),
      spdlog::details::log_msg(
          "log",
          spdlog::level::warn,
          fmt::format("{} messages dropped here: stderr did not accept them in time", count)));
}

// Never destroyed, so that logging works in static destructors.
LineWriter& StderrWriter() {
  static auto* const writer = [] {
    std::atexit([] { FlushLog(kEndLimit); });
    return new LineWriter(STDERR_FILENO, kMaxQueuedBytes, DropNotice);
  }();
  return *writer;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    StderrWriter().Write(FormatLine(*formatter_, message));
  }
  void flush_() override {}
};

constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kCrashSignals.size()> actions_before;

// Runs on the thread that crashes. The log's own thread keeps writing meanwhile.
void OnCrash(int signal) {
  StderrWriter().FlushInSignalHandler(kEndLimit);
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (kCrashSignals[i] == signal) ::sigaction(signal, &actions_before[i], nullptr);
  }
  ::raise(signal);
}

// Replaces the terminate handler of the C++ library, which writes to stderr itself and therefore
// blocks when stderr is a full pipe.
[[noreturn]] void OnTerminate() {
  std::string what = "std::terminate was called";
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    what = fmt::format("uncaught exception: {}", error.what());
  } catch (...) {
    what = "uncaught exception that is not a std::exception";
  }
  Logger("log").Error("the process ends: {}", what);
  std::abort();
}

// All loggers of the process, by module. Never destroyed, so that logging works in static
// destructors.
class Loggers final {
 public:
  static Loggers& Get() {
    static auto* const loggers = new Loggers;
    return *loggers;
  }

  spdlog::logger* Find(std::string_view module) {
    std::lock_guard lock(mutex_);
    auto& logger = loggers_[std::string(module)];
    if (!logger) {
      logger = std::make_unique<spdlog::logger>(std::string(module), sink_);
      ApplyLevel(*logger);
    }
    return logger.get();
  }

  void Configure(const LogOptions& options) {
    std::lock_guard lock(mutex_);
    options_ = options;
    for (auto& [name, logger] : loggers_) ApplyLevel(*logger);
  }

 private:
  Loggers() : sink_(std::make_shared<StderrSink>()) { sink_->set_formatter(MakeFormatter()); }

  void ApplyLevel(spdlog::logger& logger) {
    const auto own = options_.modules.find(logger.name());
    logger.set_level(ToSpdlog(own == options_.modules.end() ? options_.level : own->second));
  }

  std::mutex mutex_;
  LogOptions options_;
  std::shared_ptr<StderrSink> sink_;
  std::map<std::string, std::unique_ptr<spdlog::logger>> loggers_;
};

}  // namespace

StatusOr<LogLevel> ParseLogLevel(std::string_view name) {
  for (const auto& [known, level] : kLevelNames) {
    if (known == name) return level;
  }
  return InvalidArgument(
      "log level \"{}\" is unknown; it must be debug, info, warning, error or off", name);
}

void ConfigureLogging(const LogOptions& options) {
  Loggers::Get().Configure(options);
}

bool FlushLog(Duration limit) {
  return StderrWriter().Flush(limit);
}

void FlushLogOnCrash() {
  StderrWriter();  // constructs the writer now, because a signal handler must not
  std::set_terminate(OnTerminate);
  struct sigaction action {};
  action.sa_handler = OnCrash;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    ::sigaction(kCrashSignals[i], &action, &actions_before[i]);
  }
}

void WriteStderr(std::string text) {
  StderrWriter().Write(std::move(text));
}

uint64_t DroppedLogMessages() {
  return StderrWriter().dropped();
}

// Find returns the same logger to every thread, so two threads may both set logger_.
spdlog::logger& Logger::Get() const {
  spdlog::logger* logger = logger_.load(std::memory_order_acquire);
  if (logger == nullptr) {
    logger = Loggers::Get().Find(module_);
    logger_.store(logger, std::memory_order_release);
  }
  return *logger;
}

bool Logger::Enabled(LogLevel level) const {
  return Get().should_log(ToSpdlog(level));
}

void Logger::Write(LogLevel level, std::string_view text) const {
  Get().log(ToSpdlog(level), "{}", text);
}

}  // namespace baton

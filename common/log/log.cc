#include "common/log/log.h"

#include <array>
#include <memory>
#include <mutex>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace baton {
namespace {

constexpr std::array<std::pair<std::string_view, LogLevel>, 6> kLevelNames = {{
    {"trace", LogLevel::kTrace},
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError},
    {"off", LogLevel::kOff},
}};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
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

// All loggers of the process. Never destroyed, so that logging works in static destructors.
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
      logger->flush_on(spdlog::level::trace);
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
  Loggers() : sink_(std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    sink_->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc));
  }

  void ApplyLevel(spdlog::logger& logger) {
    const auto own = options_.modules.find(logger.name());
    logger.set_level(ToSpdlog(own == options_.modules.end() ? options_.level : own->second));
  }

  std::mutex mutex_;
  LogOptions options_;
  std::shared_ptr<spdlog::sinks::stderr_sink_mt> sink_;
  std::map<std::string, std::unique_ptr<spdlog::logger>> loggers_;
};

}  // namespace

StatusOr<LogLevel> ParseLogLevel(std::string_view name) {
  for (const auto& [known, level] : kLevelNames) {
    if (known == name) return level;
  }
  return InvalidArgument(
      "log level \"{}\" is unknown; it must be trace, debug, info, warning, error or off", name);
}

void ConfigureLogging(const LogOptions& options) {
  Loggers::Get().Configure(options);
}

Logger::Logger(std::string_view module) : logger_(Loggers::Get().Find(module)) {}

bool Logger::Enabled(LogLevel level) const {
  return logger_->should_log(ToSpdlog(level));
}

void Logger::Write(LogLevel level, std::string_view text) const {
  logger_->log(ToSpdlog(level), "{}", text);
}

}  // namespace baton

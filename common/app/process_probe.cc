#include "common/app/process_probe.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>

#include "common/app/version.h"
#include "common/log/log.h"

namespace baton {
namespace {

// The start time of this process in seconds since 1970: the boot time (/proc/stat) plus the clock
// ticks from boot to start, field 22 of /proc/self/stat (proc(5)).
double StartSeconds() {
  constexpr int kFieldsBefore = 19;  // between the command's ')' and field 22
  std::ifstream stat("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(stat), {}};
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(command_end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  std::ifstream system("/proc/stat");
  std::string word;
  double boot = 0;
  while (system >> word) {
    if (word == "btime") system >> boot;
  }
  return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double CpuSeconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double OpenFds() {
  std::error_code error;
  const std::filesystem::directory_iterator folder("/proc/self/fd", error);
  if (error) return 0;
  const auto listed = std::distance(begin(folder), end(folder));
  return static_cast<double>(listed - 1);  // without the descriptor that lists the folder
}

double MaxFds() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<double>::infinity();
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

ProcessProbe::ProcessProbe(MetricsRegistry& metrics)
    : metrics_(metrics),
      cpu_seconds_(metrics.AddCounter("process_cpu_seconds_total",
                                      "CPU time of the process in seconds, user and system.")),
      resident_bytes_(
          metrics.AddGauge("process_resident_memory_bytes", "Resident memory in bytes.")),
      virtual_bytes_(metrics.AddGauge("process_virtual_memory_bytes", "Virtual memory in bytes.")),
      open_fds_(metrics.AddGauge("process_open_fds", "Open file descriptors.")),
      max_fds_(metrics.AddGauge("process_max_fds", "Limit of open file descriptors.")),
      log_dropped_(metrics.AddCounter(
          "baton_log_dropped_total",
          "Log messages that were dropped because stderr did not accept them in time.")) {
  metrics
      .AddGauge("process_start_time_seconds", "Start of the process, in seconds since 1970-01-01.")
      .Set(StartSeconds());
  metrics
      .AddGauge("baton_build_info",
                "Always 1. The labels state the version and the compiler.",
                {{"version", std::string(Version())}, {"compiler", __VERSION__}})
      .Set(1);
  update_ = metrics.AddUpdate([this] { Update(); });
}

ProcessProbe::~ProcessProbe() {
  metrics_.RemoveUpdate(update_);
}

void ProcessProbe::Update() {
  cpu_seconds_.RaiseTo(CpuSeconds());
  double virtual_pages = 0;
  double resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  virtual_bytes_.Set(virtual_pages * page);
  resident_bytes_.Set(resident_pages * page);
  open_fds_.Set(OpenFds());
  max_fds_.Set(MaxFds());
  log_dropped_.RaiseTo(static_cast<double>(DroppedLogMessages()));
}

}  // namespace baton

#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"

namespace baton {

// The warnings about the certificates in the PEM file `path` at `now_s` seconds since 1970: one for
// each that has expired, expires within 14 days, or is not valid yet. A file that cannot be read
// gives none: whoever loads the file reports that.
std::vector<std::string> CertificateWarnings(const std::string& path, int64_t now_s);

// Logs CertificateWarnings of the files that a process loads: when it is made, when a file has
// changed, and once a day. Has a thread of its own if there is a file.
class CertificateWatch final {
 public:
  // Empty names are left out. Looks at the files each `interval`.
  explicit CertificateWatch(std::vector<std::string> files,
                            Duration interval = std::chrono::seconds(10));

 private:
  void Run(const std::stop_token& stop, Duration interval);

  std::vector<std::string> files_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace baton

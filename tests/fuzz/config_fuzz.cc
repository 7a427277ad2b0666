// The configuration of a router or a worker. The first byte of the input selects the schema and the
// form: 'r' and 'w' are followed by a YAML file, 'R' and 'W' by the text of one --set. A
// configuration that is accepted must be printed as a file that means the same.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace baton {
namespace {

// A file in memory.
class MemoryFile final {
 public:
  MemoryFile() : fd_(::memfd_create("config", MFD_CLOEXEC)) {
    BATON_CHECK(fd_.valid(), "memfd_create failed");
  }

  void Fill(const std::string& text) {
    const bool filled =
        ::ftruncate(fd_.get(), 0) == 0 &&
        ::pwrite(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    BATON_CHECK(filled, "the file in memory could not be written");
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

 private:
  UniqueFd fd_;
};

template <class Config>
void Load(bool as_override, const std::string& text) {
  static MemoryFile file;
  ConfigSources sources;
  if (as_override) {
    sources.overrides = {text};
  } else {
    file.Fill(text);
    sources.files = {file.path()};
  }
  Config loaded;
  if (!LoadConfig(sources, loaded).ok()) return;
  const std::string printed = ToYaml(loaded);
  file.Fill(printed);
  Config again;
  const Status status = LoadConfig({{file.path()}, {}}, again);
  BATON_CHECK(status.ok(), "a printed configuration is refused: {}", Message(status));
  BATON_CHECK(ToYaml(again) == printed, "a printed configuration means something else");
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool as_override = data[0] == 'R' || data[0] == 'W';
  if (data[0] == 'r' || data[0] == 'R') baton::Load<baton::config::RouterConfig>(as_override, text);
  if (data[0] == 'w' || data[0] == 'W') baton::Load<baton::config::WorkerConfig>(as_override, text);
  return 0;
}

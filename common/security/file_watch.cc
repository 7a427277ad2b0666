#include "common/security/file_watch.h"

#include <sys/stat.h>

namespace baton {

FileWatch::State FileWatch::Look() const {
  struct stat file {};
  if (::stat(path_.c_str(), &file) != 0) return {};
  return {file.st_dev,
          file.st_ino,
          file.st_size,
          int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec};
}

bool FileWatch::Changed(Time now) {
  if (now < next_look_) return false;
  next_look_ = now + interval_;
  const State state = Look();
  if (state == state_) return false;
  state_ = state;
  return true;
}

}  // namespace baton

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/log/log.h"
#include "common/security/file_watch.h"
#include "common/security/refusals.h"

namespace baton {

// The content of a file as a T, read again when the file changes. When a changed file cannot be
// read, the earlier content stays, and the log says so. Empty when there is no file. Thread-safe.
template <class T>
class ReloadedFile final {
 public:
  using Load = std::function<StatusOr<T>(const std::string& path)>;

  ReloadedFile() = default;

  // Errors of `load`. An empty path of `watch`: no file. `refusals` outlives this object.
  static StatusOr<ReloadedFile> Open(FileWatch watch, Load load, Refusals& refusals) {
    ReloadedFile file;
    if (watch.path().empty()) return file;
    // The watch begins before the file is read, so that no change is missed.
    file.state_ = std::make_unique<State>(std::move(watch), std::move(load), refusals);
    BATON_ASSIGN_OR_RETURN(T content, file.state_->load(file.state_->watch.path()));
    file.state_->content = std::make_shared<const T>(std::move(content));
    return file;
  }

  // The present content; null when there is no file.
  std::shared_ptr<const T> Get() {
    if (state_ == nullptr) return nullptr;
    std::lock_guard lock(state_->mutex);
    if (!state_->watch.Changed(SteadyClock().Now())) return state_->content;
    const Logger log("security");
    StatusOr<T> content = state_->load(state_->watch.path());
    if (content.ok()) {
      log.Info("read {} again, because it has changed", state_->watch.path());
      state_->content = std::make_shared<const T>(*std::move(content));
    } else {
      state_->refusals.probe().OnReloadFailed();
      log.Error("a changed file cannot be used, so its earlier content stays valid: {}",
                Message(content.status()));
    }
    return state_->content;
  }

 private:
  struct State {
    State(FileWatch watch_in, Load load_in, Refusals& refusals_in)
        : watch(std::move(watch_in)), load(std::move(load_in)), refusals(refusals_in) {}
    std::mutex mutex;  // guards `watch` and `content`
    FileWatch watch;
    const Load load;
    Refusals& refusals;
    std::shared_ptr<const T> content;
  };

  std::unique_ptr<State> state_;
};

}  // namespace baton

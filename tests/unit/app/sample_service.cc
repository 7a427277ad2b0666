// A process with a service that does nothing, for app_test. max_attempts chooses its behaviour.
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <thread>

#include "common/app/run_service.h"
#include "common/base/check.h"
#include "common/log/log.h"

namespace baton {
namespace {

constexpr int kManyLines = 40'000;  // more than the log's queue holds

class SampleService final : public Service {
 public:
  explicit SampleService(const config::RouterConfig& config) : config_(config) {}
  Status Ready() const override {
    if (config_.max_attempts() == 1) return Status(StatusCode::kUnavailable, "no worker yet");
    return OkStatus();
  }
  Status Failure() const override {
    if (config_.max_attempts() == 6) return Status(StatusCode::kUnavailable, "its device is lost");
    return OkStatus();
  }
  bool Finished() const override { return config_.max_attempts() == 11; }
  std::map<std::string, std::string> addresses() const override {
    return {{"grpc", config_.listen()}};
  }
  // If max_attempts is 2, lasts until Stop or `limit`; otherwise returns at once.
  void Drain(Duration limit) override {
    if (config_.max_attempts() == 2) stopped_.get_future().wait_for(limit);
  }
  void Stop() override { stopped_.set_value(); }

 private:
  const config::RouterConfig config_;
  std::promise<void> stopped_;
};

void LogMuch() {
  const Logger log("sample");
  for (int i = 0; i < kManyLines; ++i) log.Info("line {} of {}", i + 1, kManyLines);
}

StatusOr<std::unique_ptr<Service>> Start(const config::RouterConfig& config, AppContext& context) {
  if (config.max_attempts() == 3) return Status(StatusCode::kUnavailable, "3: cannot start now");
  if (config.max_attempts() == 12) return InvalidArgument("max_attempts 12 is not liked");
  if (config.max_attempts() == 5) {
    Logger("sample").Info("listens at http://{}/", context.http.address());
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  if (config.max_attempts() >= 7 && config.max_attempts() <= 10) LogMuch();
  if (config.max_attempts() == 8) std::abort();
  BATON_CHECK(config.max_attempts() != 9, "max_attempts is 9");
  if (config.max_attempts() == 10) throw std::runtime_error("max_attempts is 10");
  return std::unique_ptr<Service>(std::make_unique<SampleService>(config));
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::RunService<baton::config::RouterConfig>(
      {"sample", "does nothing"}, argc, argv, baton::Start);
}

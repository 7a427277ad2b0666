#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "common/collective/mpi/mpi_collective.h"
#include "common/collective/mpi/mpi_runtime.h"
#include "common/collective/mpi_world.h"

// The entry point of the shared object; see common/collective/mpi_world.h.
namespace baton {
namespace {

class OpenMpi final : public MpiWorld {
 public:
  OpenMpi(std::unique_ptr<MpiRuntime> runtime, const CollectiveOptions& options)
      : runtime_(std::move(runtime)) {
    std::vector<int> ranks(runtime_->size());
    std::iota(ranks.begin(), ranks.end(), 0);
    all_ = Make(0, std::move(ranks), rank(), options);
  }

  int rank() const override { return runtime_->rank(); }
  int size() const override { return runtime_->size(); }
  const std::vector<int>& first_on_host() const override { return runtime_->first_on_host(); }
  Collective& all() override { return *all_; }
  void Abort(int rank, std::string_view message) override { runtime_->Abort(rank, message); }
  Status Post(int to, std::string bytes) override { return runtime_->Post(to, std::move(bytes)); }
  StatusOr<std::optional<MpiLetter>> Take(Duration timeout, Duration pause) override {
    return runtime_->Take(timeout, pause);
  }
  void Close() override { runtime_->Close(); }

  StatusOr<std::unique_ptr<Collective>> MakeCollective(int id,
                                                       const std::vector<int>& ranks,
                                                       const CollectiveOptions& options) override {
    if (id < 1 || id > kMaxId) {
      return InvalidArgument(
          "the id of a collective is {}; it must be between 1 and {}", id, kMaxId);
    }
    const std::set<int> different(ranks.begin(), ranks.end());
    if (different.size() != ranks.size() || ranks.empty() || *different.begin() < 0 ||
        *different.rbegin() >= size()) {
      return InvalidArgument(
          "the ranks of collective {} are {}; they must be different and between 0 and {}",
          id,
          fmt::join(ranks, ", "),
          size() - 1);
    }
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    if (place == ranks.end()) {
      return InvalidArgument("rank {} is not in collective {}, whose ranks are {}",
                             rank(),
                             id,
                             fmt::join(ranks, ", "));
    }
    return Make(id, ranks, static_cast<int>(place - ranks.begin()), options);
  }

 private:
  std::unique_ptr<Collective> Make(int id,
                                   std::vector<int> ranks,
                                   int me,
                                   const CollectiveOptions& options) {
    return std::make_unique<MpiCollective>(
        *runtime_,
        MpiCollective::Options{.id = id,
                               .ranks = std::move(ranks),
                               .me = me,
                               .limit = options.limit,
                               .busy_poll = BusyPollOf(options, runtime_->ranks_here()),
                               .ahead_bytes = options.ahead_bytes});
  }

  std::unique_ptr<MpiRuntime> runtime_;
  std::unique_ptr<Collective> all_;
};

}  // namespace
}  // namespace baton

extern "C" __attribute__((visibility("default"))) baton::Status BatonOpenMpi(
    std::string_view version,
    const baton::MpiOptions& options,
    std::unique_ptr<baton::MpiWorld>& out) {
  if (version != baton::kMpiVersion) {
    return baton::MakeStatus(baton::StatusCode::kFailedPrecondition,
                             "Baton's MPI library has version '{}' and the program has version "
                             "'{}'; they must be equal",
                             baton::kMpiVersion,
                             version);
  }
  BATON_ASSIGN_OR_RETURN(auto runtime, baton::MpiRuntime::Start());
  out = std::make_unique<baton::OpenMpi>(std::move(runtime), options.all);
  return baton::OkStatus();
}

#include "common/worker/rank_service.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/app/run_service.h"
#include "common/base/thread.h"
#include "common/config/mpirun.h"
#include "common/engine/local_executor.h"
#include "common/group/follower.h"
#include "common/group/group_shape.h"
#include "common/group/mpirun_start.h"
#include "common/group/rank_socket.h"
#include "common/log/log.h"
#include "common/worker/model_host.h"
#include "common/worker/rank_config_wire.h"
#include "common/worker/rank_messages.h"

namespace baton {
namespace {

constexpr Duration kLogLimit = std::chrono::seconds(1);
constexpr Duration kWelcomeLimit = std::chrono::seconds(30);
// A leader that lives notices the end of its group, and ends, within this time.
constexpr Duration kLeaderEnds = std::chrono::seconds(2);
constexpr Duration kPoll = std::chrono::milliseconds(100);

const Logger kLog("group");

// Ends this process when the leader's process has ended, also while the model is loaded.
std::jthread EndWithLeader(int socket) {
  return StartThread("leader", [socket](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{socket, POLLRDHUP, 0};
      const auto wait = static_cast<int>(ToMillis(kPoll));
      if (::poll(&waiting, 1, wait) <= 0 || waiting.revents == 0) continue;
      FlushLog(kLogLimit);
      ::_exit(EXIT_SUCCESS);
    }
  });
}

// One rank of a group, from its start to its end.
class Rank {
 public:
  Rank(const config::WorkerConfig& config, WorkerKind kind, RankSocket& leader)
      : config_(config), kind_(kind), leader_(leader) {}

  Status Run() {
    BATON_RETURN_IF_ERROR(Join());
    Status status = Follow();
    memory_->Abort(rank_, Message(status));
    return status;
  }

  // True when the leader shows no sign of life. Waits kLeaderEnds at most.
  bool LeaderHangs() const {
    if (ring_ == nullptr) return false;
    const uint64_t beats = ring_->beats();
    std::this_thread::sleep_for(kLeaderEnds);
    return ring_->beats() == beats;
  }

 private:
  // Loads the rank's part of the model and allocates its arena.
  Status Join() {
    BATON_ASSIGN_OR_RETURN(RankSocket::Message welcome, leader_.Receive(kWelcomeLimit));
    BATON_ASSIGN_OR_RETURN(rank_, RankIn(welcome.text));
    const GroupShape shape = GroupShapeOf(config_);
    if (rank_ < 1 || rank_ >= shape.ranks()) {
      return InvalidArgument("rank {} of a group of {} ranks", rank_, shape.ranks());
    }
    BATON_ASSIGN_OR_RETURN(memory_,
                           GroupMemory::Open(std::move(welcome.descriptor), shape.layout()));
    BATON_ASSIGN_OR_RETURN(
        collectives_,
        RankCollectives::Create(*memory_, shape, rank_, CollectiveOptionsOf(config_)));
    BATON_ASSIGN_OR_RETURN(
        model_, ModelHost::Open(RankModelOptions(config_, kind_, rank_, collectives_->groups())));
    const RankPart part = {.shard = model_->kv_shard(),
                           .agree_on_blocks = [this](int32_t blocks) { return Agree(blocks); }};
    BATON_ASSIGN_OR_RETURN(executor_,
                           LocalExecutor::Create(KvOptionsOf(config_), model_->runner(), part));
    const KvArena& arena = executor_->kv_arenas().front();
    std::string exported;
    if (Dma* const dma = model_->dma(); dma != nullptr) {
      BATON_ASSIGN_OR_RETURN(exported, dma->Export(*arena.memory));
    }
    return leader_.Send(ShardMessage(arena.shard, exported), arena.memory->shared_fd());
  }

  StatusOr<int32_t> Agree(int32_t blocks) {
    BATON_RETURN_IF_ERROR(leader_.Send(HelloOf(config_, rank_, *model_, blocks).ToJson()));
    BATON_ASSIGN_OR_RETURN(RankSocket::Message answer, leader_.Receive(kRankStartLimit));
    BATON_ASSIGN_OR_RETURN(const int32_t agreed, BlocksIn(answer.text));
    BATON_ASSIGN_OR_RETURN(ring_, StepRing::Open(std::move(answer.descriptor)));
    return agreed;
  }

  Status Follow() {
    FollowerOptions options;
    options.follower = rank_ - 1;
    options.waiting.broken = [this] { return memory_->abort_status(); };
    options.leader_limit = CollectiveOptionsOf(config_).limit;
    return RunFollower(*executor_, *ring_, options, {});
  }

  const config::WorkerConfig& config_;
  const WorkerKind kind_;
  RankSocket& leader_;
  int rank_ = 0;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<RankCollectives> collectives_;
  std::unique_ptr<ModelHost> model_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<StepRing> ring_;
};

// The socket to the leader: the one that the leader passed, or a new one when mpirun started this
// process as a follower. Nothing when this process is a leader.
StatusOr<std::optional<RankSocket>> FindLeader(const config::WorkerConfig& config,
                                               UniqueFd passed) {
  if (passed.valid()) return std::optional(RankSocket(std::move(passed)));
  const auto place = PlaceInMpirun();
  if (!place.has_value() || place->rank == 0) return std::optional<RankSocket>();
  BATON_ASSIGN_OR_RETURN(RankSocket socket,
                         ConnectToMpirunLeader(GroupShapeOf(config).ranks(), kWelcomeLimit));
  return std::optional(std::move(socket));
}

int Follow(const config::WorkerConfig& config, WorkerKind kind, RankSocket leader) {
  // A supervisor that signals all processes of a service means the leader, which drains.
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  // Runs until the process ends.
  // NOLINTNEXTLINE(clang-analyzer-deadcode.DeadStores)
  const std::jthread watch = EndWithLeader(leader.fd());
  Rank rank(config, kind, leader);
  const Status status = rank.Run();
  kLog.Error("a rank of a group ends: {}", Message(status));
  (void)leader.Send(ErrorMessage(status));
  if (rank.LeaderHangs()) {
    kLog.Error("the leader hangs and is killed, so that its requests go to other workers");
    if (const auto leader_pid = leader.peer(); leader_pid.ok()) ::kill(*leader_pid, SIGKILL);
  }
  FlushLog(kLogLimit);
  ::_exit(EXIT_FAILURE);
}

std::optional<int> RunRank(const config::WorkerConfig& config, WorkerKind kind, UniqueFd socket) {
  auto leader = FindLeader(config, std::move(socket));
  if (!leader.ok()) {
    kLog.Error("a rank of a group cannot start: {}", Message(leader.status()));
    return ExitStatusOf(leader.status());
  }
  if (!leader->has_value()) return std::nullopt;
  return Follow(config, kind, **std::move(leader));
}

}  // namespace

std::optional<int> RunPrefillRank(const config::WorkerConfig& config, UniqueFd socket) {
  return RunRank(config, WorkerKind::kPrefill, std::move(socket));
}

std::optional<int> RunDecodeRank(const config::WorkerConfig& config, UniqueFd socket) {
  const WorkerKind kind = config.unified() ? WorkerKind::kUnified : WorkerKind::kDecode;
  return RunRank(config, kind, std::move(socket));
}

}  // namespace baton

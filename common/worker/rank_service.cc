#include "common/worker/rank_service.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/app/process_security.h"
#include "common/app/run_service.h"
#include "common/base/thread.h"
#include "common/config/mpirun.h"
#include "common/engine/decoder_executor.h"
#include "common/group/follower.h"
#include "common/group/group_shape.h"
#include "common/group/mpirun_start.h"
#include "common/group/rank_socket.h"
#include "common/group/remote_leader.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/worker/model_host.h"
#include "common/worker/rank_config_wire.h"
#include "common/worker/rank_messages.h"
#include "common/worker/rank_shards.h"
#include "common/worker/transfer_config_wire.h"

namespace baton {
namespace {

constexpr Duration kLogLimit = std::chrono::seconds(1);
constexpr Duration kWelcomeLimit = std::chrono::seconds(30);
// A leader that lives notices the end of its group, and ends, within this time.
constexpr Duration kLeaderEnds = std::chrono::seconds(2);
constexpr Duration kPoll = std::chrono::seconds(1);
// The main thread of a rank sees within this time that its group is broken, and tells the reason.
constexpr Duration kMainThreadEnds = std::chrono::milliseconds(300);

const Logger kLog("group");

// How a follower reaches its group.
struct Membership {
  std::unique_ptr<MpiWorld> world;      // null when all ranks are on one host
  std::optional<RankSocket> leader;     // when the leader is on this host
  std::unique_ptr<GroupMemory> memory;  // when the leader is on another host
};

// Ends this process: with status 0 when the leader has ended, or 1 when the group is broken.
[[noreturn]] void EndProcess(const Status& reason, MpiWorld* world) {
  if (reason.ok() && world != nullptr) world->Close();
  FlushLog(kLogLimit);
  ::_exit(reason.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

// Ends this process when the leader's process has ended, also while the model is loaded.
std::jthread EndWithLeader(int socket, MpiWorld* world) {
  return StartThread("leader", [socket, world](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{socket, POLLRDHUP, 0};
      const auto wait = static_cast<int>(ToMillis(kPoll));
      if (::poll(&waiting, 1, wait) <= 0 || waiting.revents == 0) continue;
      EndProcess(OkStatus(), world);
    }
  });
}

// One rank of a group, from its start to its end.
class Rank {
 public:
  Rank(const config::WorkerConfig& config, WorkerKind kind, Membership membership)
      : config_(config),
        kind_(kind),
        world_(std::move(membership.world)),
        socket_(std::move(membership.leader)),
        memory_(std::move(membership.memory)) {
    if (socket_.has_value()) return;
    // A broken group ends the main thread, except while it loads the model.
    remote_ = std::make_unique<RemoteLeader>(*world_, *memory_, [this](const Status& reason) {
      if (!reason.ok()) kLog.Error("the group ends: {}", Message(reason));
      if (!reason.ok()) std::this_thread::sleep_for(kMainThreadEnds);
      EndProcess(reason, world_.get());
    });
  }

  RankLink& leader() { return socket_.has_value() ? static_cast<RankLink&>(*socket_) : *remote_; }
  const std::optional<RankSocket>& socket() const { return socket_; }
  MpiWorld* world() { return world_.get(); }

  Status Run() {
    BATON_RETURN_IF_ERROR(Join());
    Status status = Follow();
    memory_->Abort(rank_, Message(status));
    return status;
  }

  // True when the leader, which is on this host, shows no sign of life. Waits kLeaderEnds at most.
  bool LeaderHangs() const {
    if (ring_ == nullptr || remote_ != nullptr) return false;
    const uint64_t beats = ring_->beats();
    std::this_thread::sleep_for(kLeaderEnds);
    return ring_->beats() == beats;
  }

 private:
  // Loads the rank's part of the model and allocates its arena.
  Status Join() {
    BATON_ASSIGN_OR_RETURN(RankLink::Message welcome, leader().Receive(kWelcomeLimit));
    BATON_ASSIGN_OR_RETURN(rank_, RankIn(welcome.text));
    const GroupShape shape = GroupShapeOf(config_);
    if (rank_ < 1 || rank_ >= shape.ranks()) {
      return InvalidArgument("rank {} of a group of {} ranks", rank_, shape.ranks());
    }
    if (memory_ == nullptr) {
      BATON_ASSIGN_OR_RETURN(memory_,
                             GroupMemory::Open(std::move(welcome.descriptor), shape.layout()));
    }
    BATON_ASSIGN_OR_RETURN(collectives_,
                           RankCollectives::Create(
                               *memory_, shape, rank_, CollectiveOptionsOf(config_), world_.get()));
    std::vector<int> hosts;
    if (world_ != nullptr) hosts = world_->first_on_host();
    BATON_ASSIGN_OR_RETURN(
        model_,
        ModelHost::Open(RankModelOptions(config_, kind_, rank_, collectives_->groups(), hosts)));
    BATON_ASSIGN_OR_RETURN(executor_,
                           model_->MakeExecutor({.kv = KvOptionsOf(config_),
                                                 .agree_on_blocks = [this](int32_t blocks) {
                                                   return Agree(blocks);
                                                 }}));
    const KvArena& arena = executor_->kv_arenas().front();
    if (remote_ != nullptr) return ServeArena(arena);
    std::string exported;
    if (Dma* const dma = model_->dma(); dma != nullptr) {
      BATON_ASSIGN_OR_RETURN(exported, dma->Export(*arena.memory));
    }
    return leader().Send(ShardMessage(arena.shard, exported), arena.memory->shared_fd());
  }

  // Lets the leader, which is on another host, command the transfers of this rank's KV.
  Status ServeArena(const KvArena& arena) {
    BATON_ASSIGN_OR_RETURN(security_, ProcessSecurity::Open(config_.security(), metrics_));
    ConnectionLimits limits;
    security_->SecurePeers(limits);
    BATON_ASSIGN_OR_RETURN(
        KvTransferOptions options,
        TransferSettingsOf(config_, arena.memory->kind(), model_->dma(), limits.proofs));
    BATON_RETURN_IF_ERROR(UseOwnAddresses(config_, options));
    options.log = [](std::string_view line) { kLog.Warning("{}", line); };
    options.log_info = [](std::string_view line) { kLog.Info("{}", line); };
    servers_ = std::make_unique<RankShardServers>(
        *remote_, options, static_cast<uint32_t>(rank_), *arena.memory);
    return leader().Send(ShardMessage(arena.shard, ""));
  }

  StatusOr<int32_t> Agree(int32_t blocks) {
    BATON_RETURN_IF_ERROR(leader().Send(HelloOf(config_, rank_, *model_, blocks).ToJson()));
    BATON_ASSIGN_OR_RETURN(
        RankLink::Message answer,
        ReceiveAndTell(leader(), kRankStartLimit, [this](Duration waited) {
          kLog.Info("rank {} has loaded its part and waits for rank 0, for {:.0f} s so far",
                    rank_,
                    ToSeconds(waited));
        }));
    BATON_ASSIGN_OR_RETURN(const int32_t agreed, BlocksIn(answer.text));
    if (remote_ == nullptr) {
      BATON_ASSIGN_OR_RETURN(ring_, StepRing::Open(std::move(answer.descriptor)));
      return agreed;
    }
    BATON_ASSIGN_OR_RETURN(ring_,
                           StepRing::Create(1, MaxGroupMessageBytes(config_, model_->traits())));
    remote_->Attach(*ring_, CollectiveOptionsOf(config_).limit);
    return agreed;
  }

  Status Follow() {
    FollowerOptions options;
    options.follower = remote_ == nullptr ? rank_ - 1 : 0;
    options.waiting.broken = [this] { return memory_->abort_status(); };
    options.leader_limit = CollectiveOptionsOf(config_).limit;
    if (remote_ != nullptr) {
      options.on_ended = [this](uint64_t ended, const RankTimes& times) {
        remote_->TellEnded(ended, times);
      };
    }
    return RunFollower(*executor_, *ring_, options, {});
  }

  const config::WorkerConfig& config_;
  const WorkerKind kind_;
  const std::unique_ptr<MpiWorld> world_;
  std::optional<RankSocket> socket_;
  int rank_ = 0;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<RankCollectives> collectives_;
  std::unique_ptr<ModelHost> model_;
  std::unique_ptr<DecoderExecutor> executor_;
  std::unique_ptr<StepRing> ring_;
  MetricsRegistry metrics_;  // of security_; nobody reads them
  std::unique_ptr<ProcessSecurity> security_;
  std::unique_ptr<RemoteLeader> remote_;  // null when the leader is on this host
  std::unique_ptr<RankShardServers> servers_;
};

// The way to the leader: the socket that the leader passed, or what mpirun gives a follower.
// Nothing when this process is a leader.
StatusOr<std::optional<Membership>> FindLeader(const config::WorkerConfig& config,
                                               UniqueFd passed) {
  Membership membership;
  if (passed.valid()) {
    membership.leader.emplace(std::move(passed));
    return std::optional(std::move(membership));
  }
  const auto place = PlaceInMpirun();
  if (!place.has_value() || place->rank == 0) return std::optional<Membership>();
  BATON_ASSIGN_OR_RETURN(MpirunFollower group,
                         ConnectToMpirunLeader(GroupShapeOf(config), kWelcomeLimit));
  membership = {std::move(group.world), std::move(group.leader), std::move(group.memory)};
  return std::optional(std::move(membership));
}

int Follow(const config::WorkerConfig& config, WorkerKind kind, Membership membership) {
  // A supervisor that signals all processes of a service means the leader, which drains.
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  Rank rank(config, kind, std::move(membership));
  std::jthread watch;
  if (rank.socket().has_value()) watch = EndWithLeader(rank.socket()->fd(), rank.world());
  const Status status = rank.Run();
  kLog.Error("a rank of a group ends: {}", Message(status));
  (void)rank.leader().Send(ErrorMessage(status));
  if (rank.LeaderHangs()) {
    kLog.Error("the leader hangs and is killed, so that its requests go to other workers");
    if (const auto leader = rank.socket()->peer(); leader.ok()) ::kill(*leader, SIGKILL);
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

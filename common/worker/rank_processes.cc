#include "common/worker/rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/app/run_service.h"
#include "common/base/thread.h"
#include "common/config/mpirun.h"
#include "common/group/mpirun_start.h"
#include "common/log/log.h"
#include "common/model/weights_hash.h"
#include "common/worker/rank_messages.h"
#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

constexpr Duration kWatchEvery = std::chrono::milliseconds(100);
// A follower that has said why it fails ends within this time.
constexpr Duration kExitLimit = std::chrono::seconds(1);

const Logger kLog("group");

// The command line of this process.
std::vector<std::string> OwnCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (!words.empty()) words.front() = "/proc/self/exe";
  return words;
}

// True when a signal has stopped `process`.
bool IsStopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  // The state follows the name, which is in parentheses and may contain any character.
  const size_t name = text.rfind(')');
  return name != std::string::npos && text.compare(name, 3, ") T") == 0;
}

std::string DescribeStatus(const std::optional<int>& status) {
  if (!status.has_value()) return "closed its connection to rank 0";
  if (*status > 128) return fmt::format("was ended by signal {}", *status - 128);
  return fmt::format("ended with status {}", *status);
}

}  // namespace

StatusOr<std::unique_ptr<RankProcesses>> RankProcesses::Start(const Options& options) {
  std::unique_ptr<RankProcesses> ranks(new RankProcesses(options));
  BATON_ASSIGN_OR_RETURN(ranks->memory_, GroupMemory::Create(options.shape.layout()));
  const int count = options.shape.ranks();
  if (PlaceInMpirun().has_value()) {
    BATON_RETURN_IF_ERROR(ranks->Accept());
  } else {
    for (int rank = 1; rank < count; ++rank) BATON_RETURN_IF_ERROR(ranks->Launch(rank));
  }
  BATON_ASSIGN_OR_RETURN(
      ranks->collectives_,
      RankCollectives::Create(
          *ranks->memory_, options.shape, 0, options.collective, ranks->world_.get()));
  for (int rank = 1; rank < count; ++rank) {
    BATON_RETURN_IF_ERROR(ranks->LinkTo(rank).Send(RankMessage(rank), ranks->memory_->fd()));
  }
  return ranks;
}

Status RankProcesses::Accept() {
  mpirun_ = ::getppid();
  BATON_ASSIGN_OR_RETURN(
      MpirunLeader group,
      AcceptMpirunRanks(
          options_.shape, options_.start_limit, [](const std::string& waited_for, Duration waited) {
            kLog.Info("waiting for ranks {} to start, for {:.0f} s so far",
                      waited_for,
                      ToSeconds(waited));
          }));
  world_ = std::move(group.world);
  std::vector<int> remote;
  for (auto& socket : group.sockets) {
    followers_.push_back({nullptr, std::move(socket)});
    if (!followers_.back().socket.has_value())
      remote.push_back(static_cast<int>(followers_.size()));
  }
  if (remote.empty()) return OkStatus();
  kLog.Info("ranks {} are on other hosts", fmt::join(remote, ", "));
  remote_ = std::make_unique<RemoteRanks>(
      *world_, *memory_, remote, [this](int rank, std::string_view reason) {
        Break(rank, reason);
      });
  return OkStatus();
}

RankLink& RankProcesses::LinkTo(int rank) {
  std::optional<RankSocket>& socket = followers_[rank - 1].socket;
  return socket.has_value() ? static_cast<RankLink&>(*socket) : remote_->link(rank);
}

std::vector<int> RankProcesses::first_on_host() const {
  return world_ == nullptr ? std::vector<int>() : world_->first_on_host();
}

Status RankProcesses::Launch(int rank) {
  BATON_ASSIGN_OR_RETURN(auto ends, RankSocket::Pair());
  ChildOptions child;
  child.command = OwnCommand();
  child.command.push_back(fmt::format("--{}={}", kRankSocketFlag, ends.second.fd()));
  child.inherited = {ends.second.fd()};
  auto process = ChildProcess::Start(child);
  if (!process.ok()) return Annotate(process.status(), fmt::format("rank {}", rank));
  followers_.push_back({*std::move(process), std::move(ends.first)});
  kLog.Info("rank {} is process {}", rank, followers_.back().process->pid());
  return OkStatus();
}

std::string RankProcesses::DescribeExit(Follower& follower) const {
  if (follower.process == nullptr) return DescribeStatus(std::nullopt);
  return DescribeStatus(follower.process->WaitExit(kExitLimit));
}

RankProcesses::~RankProcesses() {
  watch_ = {};
  remote_.reset();
  for (Follower& follower : followers_) {
    if (follower.process != nullptr) follower.process->Signal(SIGKILL);
  }
  // The followers on this host see this end before they close MPI.
  followers_.clear();
}

void RankProcesses::TellWait(int rank, const Follower& follower, Duration waited) {
  const std::string told =
      fmt::format("waiting for rank {} to start, for {:.0f} s so far", rank, ToSeconds(waited));
  if (follower.process == nullptr) return kLog.Info("{}", told);
  const pid_t process = follower.process->pid();
  if (!IsStopped(process)) return kLog.Info("{} (process {})", told, process);
  kLog.Warning("{}: a signal has stopped its process {}; SIGCONT continues it", told, process);
}

StatusOr<RankLink::Message> RankProcesses::ReceiveFrom(int rank) {
  Follower& follower = followers_[rank - 1];
  auto message = ReceiveAndTell(LinkTo(rank), options_.start_limit, [&](Duration waited) {
    TellWait(rank, follower, waited);
  });
  if (message.ok()) {
    const Status error = ErrorIn(message->text);
    return error.ok() ? std::move(message) : Annotate(error, fmt::format("rank {}", rank));
  }
  if (message.status().code() == StatusCode::kUnavailable && follower.socket.has_value()) {
    return MakeStatus(
        StatusCode::kUnavailable, "rank {} {} while it started", rank, DescribeExit(follower));
  }
  return Annotate(message.status(), fmt::format("rank {} has not started", rank));
}

StatusOr<int32_t> RankProcesses::Agree(const RankHello& ours, size_t message_bytes) {
  int32_t blocks = ours.blocks;
  weights_hash_ = ours.weights;
  for (int rank = 1; rank < options_.shape.ranks(); ++rank) {
    BATON_ASSIGN_OR_RETURN(const RankLink::Message message, ReceiveFrom(rank));
    BATON_ASSIGN_OR_RETURN(const RankHello hello, RankHello::FromJson(message.text));
    BATON_RETURN_IF_ERROR(CheckSameGroup(ours, hello));
    blocks = std::min(blocks, hello.blocks);
    weights_hash_ = SumOf(weights_hash_, hello.weights);
  }
  BATON_ASSIGN_OR_RETURN(ring_, StepRing::Create(options_.shape.ranks() - 1, message_bytes));
  if (remote_ != nullptr) remote_->Attach(*ring_);
  for (int rank = 1; rank < options_.shape.ranks(); ++rank) {
    BATON_RETURN_IF_ERROR(LinkTo(rank).Send(BlocksMessage(blocks), ring_->fd()));
  }
  return blocks;
}

StatusOr<std::vector<FollowerArena>> RankProcesses::TakeArenas(Dma* dma) {
  std::vector<FollowerArena> arenas;
  for (int rank = 1; rank < options_.shape.ranks(); ++rank) {
    BATON_ASSIGN_OR_RETURN(RankLink::Message message, ReceiveFrom(rank));
    FollowerArena& arena = arenas.emplace_back();
    BATON_ASSIGN_OR_RETURN(arena.shard, ShardIn(message.text));
    if (!followers_[rank - 1].socket.has_value()) continue;
    if (dma == nullptr) {
      BATON_ASSIGN_OR_RETURN(arena.memory, MapShared(std::move(message.descriptor)));
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const std::string exported, ExportIn(message.text));
    auto imported = dma->Import(exported);
    if (!imported.ok()) {
      return Annotate(imported.status(), fmt::format("the KV memory of rank {}", rank));
    }
    arena.memory = *std::move(imported);
  }
  watch_ = StartThread("ranks", [this](const std::stop_token& stop) { Watch(stop); });
  return arenas;
}

void RankProcesses::Watch(const std::stop_token& stop) {
  std::vector<pollfd> sockets;
  for (const Follower& follower : followers_) {
    sockets.push_back({follower.socket.has_value() ? follower.socket->fd() : -1, POLLIN, 0});
  }
  const SteadyClock clock;
  while (!stop.stop_requested()) {
    ring_->Beat();
    WatchMpirun(clock.Now());
    WatchRemote();
    const auto wait = static_cast<int>(ToMillis(kWatchEvery));
    if (::poll(sockets.data(), sockets.size(), wait) <= 0) continue;
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i].revents == 0) continue;
      sockets[i].fd = -1;  // the first reason counts
      const auto message = followers_[i].socket->Receive(Duration::zero());
      const Status error = message.ok() ? ErrorIn(message->text) : OkStatus();
      Break(static_cast<int>(i) + 1,
            error.ok() ? DescribeExit(followers_[i]) : std::string(Message(error)));
    }
  }
}

void RankProcesses::WatchMpirun(Time now) {
  if (mpirun_ == 0) return;
  if (::getppid() != mpirun_) {
    mpirun_ = 0;
    return Break(0, "has lost mpirun, which started the group");
  }
  if (!IsStopped(mpirun_)) {
    mpirun_stopped_.reset();
    return;
  }
  if (!mpirun_stopped_.has_value()) mpirun_stopped_ = now;
  if (now - *mpirun_stopped_ < options_.collective.limit) return;
  mpirun_ = 0;
  Break(0, "has an mpirun, which started the group, that is stopped (SIGSTOP)");
}

void RankProcesses::WatchRemote() {
  if (remote_ == nullptr) return;
  for (const int rank : remote_->ranks()) {
    const auto message = remote_->link(rank).Receive(Duration::zero());
    const Status error = message.ok() ? ErrorIn(message->text) : OkStatus();
    if (!error.ok()) Break(rank, Message(error));
  }
}

void RankProcesses::Break(int rank, std::string_view reason) {
  // The first rank that aborts is the cause; the others end because of it.
  memory_->Abort(rank, reason);
  const std::optional<int> cause = memory_->aborted_by();
  if (cause == rank) {
    kLog.Error("rank {} {}: the group ends", rank, reason);
  } else {
    kLog.Info("rank {} has ended because of rank {}: {}", rank, *cause, reason);
  }
  if (world_ != nullptr) world_->Abort(rank, reason);
}

StepRing::Waiting RankProcesses::waiting() const {
  return {.broken = [this] { return status(); }};
}

Status RankProcesses::status() const {
  return memory_->abort_status();
}

}  // namespace baton

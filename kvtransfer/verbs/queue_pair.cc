#include "kvtransfer/verbs/queue_pair.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/hash.h"

namespace baton {
namespace {

// A lost packet is sent again after 4.096 µs · 2^16 = 268 ms, at most 7 times. A shorter time-out
// sends packets again that are only late: soft-RoCE then fails with "remote invalid request".
constexpr uint8_t kTimeoutExponent = 16;
constexpr uint8_t kRetries = 7;
// A receiver without a receive request lets the sender wait 82 ms (code 26), at most 6 times; 7
// would mean for ever.
constexpr uint8_t kReceiverNotReadyTimer = 26;
constexpr uint8_t kReceiverNotReadyRetries = 6;
constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kMax24Bits = (1u << 24) - 1;

bool IsSameSubnet(const Gid& ours, const Gid& theirs) {
  return std::equal(ours.begin(), ours.begin() + 8, theirs.begin());
}

}  // namespace

StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(const Rail& rail,
                                                                   uint32_t entries) {
  const VerbsLibrary& verbs = rail.verbs();
  VerbsPtr<ibv_comp_channel> channel(verbs.create_comp_channel(rail.context()),
                                     {verbs.destroy_comp_channel});
  if (!channel || ::fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{}: no completion channel: {}",
                      rail.ToString(),
                      std::strerror(errno));
  }
  VerbsPtr<ibv_cq> queue(
      verbs.create_cq(rail.context(), static_cast<int>(entries), nullptr, channel.get(), 0),
      {verbs.destroy_cq});
  if (!queue) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{}: no completion queue of {} entries: {}",
                      rail.ToString(),
                      entries,
                      std::strerror(errno));
  }
  return std::unique_ptr<CompletionQueue>(
      new CompletionQueue(verbs, std::move(channel), std::move(queue)));
}

StatusOr<size_t> CompletionQueue::Poll(std::span<ibv_wc> completions) {
  const int count =
      ibv_poll_cq(queue_.get(), static_cast<int>(completions.size()), completions.data());
  if (count >= 0) return static_cast<size_t>(count);
  return MakeStatus(StatusCode::kUnavailable, "an RDMA completion queue is broken");
}

bool CompletionQueue::Arm() {
  if (std::exchange(is_armed_, true)) return false;
  // An error delays the caller to its next periodic Poll.
  (void)ibv_req_notify_cq(queue_.get(), /*solicited_only=*/0);
  return true;
}

void CompletionQueue::TakeNotifications() {
  // At most one notification follows an Arm, so most calls need no system call.
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (is_armed_ && verbs_.get_cq_event(channel_.get(), &queue, &context) == 0) {
    verbs_.ack_cq_events(queue, 1);
    is_armed_ = false;
  }
}

QueuePair::QueuePair(const Rail& rail, ibv_qp* queue_pair)
    : rail_(rail), queue_pair_(queue_pair), psn_(static_cast<uint32_t>(RandomId()) & kMax24Bits) {}

StatusOr<std::unique_ptr<QueuePair>> QueuePair::Create(const Rail& rail,
                                                       const CompletionQueue& completions,
                                                       const Options& options) {
  ibv_qp_init_attr init{};
  init.send_cq = completions.get();
  init.recv_cq = completions.get();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = options.sends;
  init.cap.max_recv_wr = options.receives;
  init.cap.max_send_sge = options.sources;
  init.cap.max_recv_sge = 1;
  ibv_qp* const created = rail.verbs().create_qp(rail.domain(), &init);
  if (created == nullptr) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{}: no queue pair with {} send and {} receive requests: {}",
                      rail.ToString(),
                      options.sends,
                      options.receives,
                      std::strerror(errno));
  }
  std::unique_ptr<QueuePair> queue_pair(new QueuePair(rail, created));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = rail.port_number();
  attributes.qp_access_flags = options.is_writable ? IBV_ACCESS_REMOTE_WRITE : 0;
  BATON_RETURN_IF_ERROR(
      queue_pair->Modify(attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                         "initialised"));
  return queue_pair;
}

QueuePair::~QueuePair() {
  (void)Destroy();
}

Status QueuePair::Modify(ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = rail_.verbs().modify_qp(queue_pair_, &attributes, mask);
  if (error == 0) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "{}: queue pair {} cannot become {}: {}",
                    rail_.ToString(),
                    queue_pair_->qp_num,
                    state,
                    std::strerror(error));
}

Status QueuePair::Connect(const PortAddress& port, const QueuePairAddress& peer, bool sends) {
  const PortAddress& own = rail_.port();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, port.mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  ibv_ah_attr& path = attributes.ah_attr;
  path.dlid = port.lid;
  path.port_num = rail_.port_number();
  // RoCE always routes by GID; InfiniBand only between subnets.
  path.is_global = own.kind != PortKind::kInfiniBand || !IsSameSubnet(own.gid, port.gid)
                       ? uint8_t{1}
                       : uint8_t{0};
  std::copy(port.gid.begin(), port.gid.end(), std::begin(path.grh.dgid.raw));
  path.grh.sgid_index = rail_.gid_index();
  path.grh.hop_limit = kHopLimit;
  path.grh.traffic_class = rail_.traffic_class();
  BATON_RETURN_IF_ERROR(Modify(attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               "ready to receive"));
  if (!sends) return OkStatus();
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeoutExponent;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverNotReadyRetries;
  attributes.sq_psn = psn_;
  attributes.max_rd_atomic = 1;
  return Modify(attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "ready to send");
}

Status QueuePair::PostSends(ibv_send_wr* first) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_, first, &bad);
  if (error == 0) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "{}: queue pair {} takes no send request: {}",
                    rail_.ToString(),
                    queue_pair_->qp_num,
                    std::strerror(error));
}

Status QueuePair::PostReceives(uint32_t count) {
  std::vector<ibv_recv_wr> requests(count);
  for (size_t i = 0; i + 1 < requests.size(); ++i) requests[i].next = &requests[i + 1];
  return count == 0 ? OkStatus() : PostReceives(requests.data());
}

Status QueuePair::PostReceives(ibv_recv_wr* first) {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_, first, &bad);
  if (error == 0) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "{}: queue pair {} takes no receive request: {}",
                    rail_.ToString(),
                    queue_pair_->qp_num,
                    std::strerror(error));
}

bool QueuePair::Destroy() {
  if (queue_pair_ == nullptr) return true;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // The device stops at once. An error does not matter, because destroying stops it too.
  (void)rail_.verbs().modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  if (rail_.verbs().destroy_qp(queue_pair_) != 0) return false;
  queue_pair_ = nullptr;
  return true;
}

}  // namespace baton

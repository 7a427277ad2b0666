#include "router/workers/join_check.h"

#include "common/kvcache/block_hash.h"

namespace baton::router {
namespace {

// Whether `own` is known and the worker's value is different.
bool Differs(const Hash128& own, const Hash128& its) {
  return own != Hash128() && own != its;
}

std::string Describe(const std::string& name,
                     int32_t vocabulary,
                     const Hash128& shape,
                     const Hash128& tokenizer,
                     const Hash128& fingerprint) {
  return fmt::format("{} (vocabulary {}, shape {}, tokenizer {}, fingerprint {})",
                     name,
                     vocabulary,
                     shape,
                     tokenizer,
                     fingerprint);
}

}  // namespace

Status CheckModel(const WorkerInfo& worker, const OwnModel& own) {
  const bool shape = Differs(own.shape, worker.shape);
  const bool tokenizer = worker.tokenizer != Hash128() && Differs(own.tokenizer, worker.tokenizer);
  if (!shape && !tokenizer && !Differs(own.fingerprint, worker.fingerprint)) return OkStatus();
  const char* what = "other weights (compare model.path, model.load_format, model.dummy_seed)";
  if (tokenizer) what = "another tokenizer";
  if (shape) what = "another model";
  return MakeStatus(
      StatusCode::kFailedPrecondition,
      "worker {} has {}: its model is {}; this router's is {}",
      worker.id,
      what,
      Describe(worker.model, worker.vocabulary, worker.shape, worker.tokenizer, worker.fingerprint),
      Describe(own.name, own.vocabulary, own.shape, own.tokenizer, own.fingerprint));
}

Status CheckSecret(const WorkerInfo& worker, uint64_t secret) {
  if (worker.secret_probe == SecretProbe(secret, worker.boot)) return OkStatus();
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "worker {} has another hash_secret than this router; all workers and routers "
                    "of a cluster need the same",
                    worker.id);
}

Status CheckFit(const WorkerInfo& worker, const ClusterIdentity& cluster) {
  if (worker.fingerprint == cluster.fingerprint && worker.weights != Hash128() &&
      Differs(cluster.weights, worker.weights)) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "worker {} has weights with the hash {}; the workers of this cluster have "
                      "weights with the hash {}. Both are of model {}, but some bytes differ: give "
                      "all workers the same weight files",
                      worker.id,
                      worker.weights,
                      cluster.weights,
                      cluster.model);
  }
  if (worker.fingerprint == cluster.fingerprint && worker.kv_layout == cluster.kv_layout &&
      worker.block_tokens == cluster.block_tokens &&
      worker.context_length == cluster.context_length) {
    return OkStatus();
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "worker {} has model {} ({}), KV layout [{}], {} tokens a block, context "
                    "length {}; the workers of this cluster have model {} ({}), KV layout [{}], {} "
                    "tokens a block, context length {}",
                    worker.id,
                    worker.model,
                    worker.fingerprint,
                    worker.kv_layout,
                    worker.block_tokens,
                    worker.context_length,
                    cluster.model,
                    cluster.fingerprint,
                    cluster.kv_layout,
                    cluster.block_tokens,
                    cluster.context_length);
}

}  // namespace baton::router

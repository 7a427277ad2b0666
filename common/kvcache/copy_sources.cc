#include "common/kvcache/copy_sources.h"

#include "common/kvcache/kv_cache.h"

namespace baton {

void CopySources::Add(KvCache& cache, BlockId block) {
  if (cache_ == nullptr) {
    cache_ = &cache;
    lease_ = Lease(cache);
  }
  lease_.Append(0, {&block, 1});
  cache_->pool_.BeginCopy(block);
}

void CopySources::Clear() {
  if (cache_ == nullptr) return;
  for (const BlockId block : lease_.blocks(0)) cache_->pool_.EndCopy(block);
  lease_.Clear();
}

}  // namespace baton

#include "common/kvcache/copy_sources.h"

#include "common/kvcache/kv_cache.h"

namespace baton {

void CopySources::Add(KvCache& cache, BlockId block) {
  if (cache_ == nullptr) {
    cache_ = &cache;
    lease_ = Lease(cache);
  }
  lease_.Append({&block, 1});
  cache_->pool_.BeginCopy(block);
}

void CopySources::Clear() {
  for (const BlockId block : lease_.blocks()) cache_->pool_.EndCopy(block);
  lease_.Clear();
}

}  // namespace baton

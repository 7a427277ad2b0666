#include "common/worker/cache_group_loads.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace baton {
namespace {

std::string NameOf(const KvCacheGroup& group) {
  if (group.state) return "state";
  if (group.layers.empty()) return "tokens";  // of a model whose layers have states alone
  const bool latent = std::ranges::none_of(group.planes, &KvPlane::sharded);
  if (group.window().reads_all()) return latent ? "latent" : "full";
  return fmt::format("{}{} of {}",
                     latent ? "latent, " : "",
                     group.window().chunked ? "chunks" : "window",
                     group.window().tokens);
}

}  // namespace

std::vector<CacheGroupLoad> CacheGroupLoads(const KvLayout& layout, std::span<const int32_t> held) {
  std::vector<CacheGroupLoad> loads;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const KvCacheGroup& group = layout.groups[i];
    const std::string name = NameOf(group);
    auto load = std::ranges::find(loads, name, &CacheGroupLoad::name);
    if (load == loads.end()) load = loads.insert(loads.end(), {.name = name});
    load->layers += static_cast<int32_t>(group.layers.size());
    load->bytes += GroupBytes(layout, group, WholeModel(layout));
    if (i < held.size()) load->blocks_held += held[i];
  }
  return loads;
}

}  // namespace baton

#include "router/api/block_writer.h"

#include <string_view>
#include <utility>

#include "common/text/utf8.h"

namespace baton::router {

void BlockWriter::Write(const std::vector<ApiBlock>& blocks) {
  for (; number_ < blocks.size(); ++number_) {
    const ApiBlock& block = blocks[number_];
    if (!std::exchange(begun_, true)) OnBegin(number_, block);
    std::string_view added = std::string_view(block.text).substr(written_);
    added.remove_suffix(IncompleteTail(added));
    written_ += added.size();
    if (!added.empty()) OnText(number_, block, std::string(added));
    if (!block.ended) return;
    OnEnd(number_, block);
    begun_ = false;
    written_ = 0;
  }
}

}  // namespace baton::router

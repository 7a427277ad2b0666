#include <nlohmann/json.hpp>

#include "cli/format.h"
#include "cli/generation_client.h"

namespace baton {

std::string FormatAccount(const GenerateAccount& account) {
  std::string lines;
  const auto add = [&lines](std::string_view what, std::string time, const std::string& note) {
    lines += fmt::format("  {:<9}{:>11}  {}\n", what, time, note);
  };
  add("queue", FormatMillis(account.queue_ms), "");
  const std::string cached =
      account.cached_tokens > 0 ? fmt::format(", {} of them cached", account.cached_tokens) : "";
  add("prefill",
      FormatMillis(account.prefill_ms),
      fmt::format("on {}: {} prompt tokens{}",
                  account.prefill_worker.empty() ? account.decode_worker : account.prefill_worker,
                  account.prompt_tokens,
                  cached));
  if (account.transport.empty()) {
    add("KV moved", "-", "prefill and decode on the same worker");
  } else {
    add("KV moved",
        FormatMillis(account.transfer_ms),
        fmt::format("{} over {} at {:.2f} GB/s",
                    FormatBytes(account.transfer_bytes),
                    account.transport,
                    account.transfer_gigabytes_per_second));
  }
  add("decode",
      FormatMillis(account.tpot_ms * std::max(0, account.generated_tokens - 1)),
      fmt::format("on {}: {} tokens", account.decode_worker, account.generated_tokens));
  add("TTFT", FormatMillis(account.ttft_ms), "to the first token");
  const std::string rate =
      account.tpot_ms > 0 ? fmt::format(" ({:.0f} tokens/s)", 1000 / account.tpot_ms) : "";
  add("TPOT", FormatMillis(account.tpot_ms), "for each token after it" + rate);
  if (account.attempts > 1) add("attempts", fmt::format("{}", account.attempts), "dispatches");
  return lines;
}

std::string AccountJson(const GenerateAccount& account) {
  return nlohmann::json{
      {"text", account.text},
      {"tokens", account.tokens},
      {"finish", account.finish},
      {"prompt_tokens", account.prompt_tokens},
      {"cached_tokens", account.cached_tokens},
      {"generated_tokens", account.generated_tokens},
      {"queue_ms", account.queue_ms},
      {"prefill_ms", account.prefill_ms},
      {"transfer_ms", account.transfer_ms},
      {"ttft_ms", account.ttft_ms},
      {"tpot_ms", account.tpot_ms},
      {"transfer_bytes", account.transfer_bytes},
      {"transfer_gigabytes_per_second", account.transfer_gigabytes_per_second},
      {"transport", account.transport},
      {"prefill_worker", account.prefill_worker},
      {"decode_worker", account.decode_worker},
      {"attempts", account.attempts},
  }
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace baton

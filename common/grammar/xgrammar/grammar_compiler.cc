#include "common/grammar/xgrammar/grammar_compiler.h"

#include <grammar_impl.h>
#include <xgrammar/grammar.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/round_robin_queue.h"
#include "common/base/work_threads.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"
#include "common/grammar/conversion_work.h"
#include "common/grammar/marked_formats.h"
#include "common/grammar/xgrammar/earley_matcher.h"
#include "common/grammar/xgrammar/grammar_passes.h"
#include "common/grammar/xgrammar/json_rules.h"
#include "common/grammar/xgrammar/library_calls.h"
#include "common/grammar/xgrammar/rule_facts.h"
#include "common/grammar/xgrammar/special_signs.h"
#include "common/grammar/xgrammar/state_masks.h"
#include "common/grammar/xgrammar/token_trie.h"
#include "common/grammar/xgrammar/utf8_tokens.h"
#include "common/text/metaspace.h"
#include "common/text/normalizer.h"
#include "kernels/token_mask.h"

namespace baton {
namespace {

class XGrammarGrammar final : public Grammar {
 public:
  XGrammarGrammar(const xgrammar::Grammar& grammar,
                  const std::shared_ptr<const TokenTrie>& trie,
                  const std::shared_ptr<const Utf8Tokens>& utf8)
      : shared_{grammar,
                trie,
                std::make_shared<StateMasks>(grammar, trie, utf8),
                std::make_shared<RecentCalls>()},
        grammar_bytes_(MemorySize(*grammar.ImplPtr())) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(std::span<const TokenId> stop_tokens) const override {
    return NewEarleyMatcher(shared_, stop_tokens);
  }
  size_t bytes() const override { return grammar_bytes_ + shared_.masks->bytes(); }
  Duration recent_call() const override { return shared_.calls->longest(); }

 private:
  const MatchedGrammar shared_;
  const size_t grammar_bytes_;
};

// The tokens that are markers of chat formats.
std::vector<TokenId> MarkerTokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const std::string_view marker : AllTokens()) {
    if (const auto token = tokenizer.Find(marker); token.has_value()) tokens.push_back(*token);
  }
  return tokens;
}

// The text of each token. A token without text is outside of every grammar. That of a marker that
// is a special token begins with kSpecialSign, which no other text has.
std::vector<std::string> TextsOf(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = tokenizer.spec();
  const std::vector<TokenId> markers = MarkerTokens(tokenizer);
  std::vector<std::string> texts(tokenizer.vocab_size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const bool marker = std::ranges::find(markers, token) != markers.end();
    const PieceKind kind = tokenizer.kind(token);
    const bool text =
        kind == PieceKind::kNormal || kind == PieceKind::kUserDefined || kind == PieceKind::kByte;
    if (!tokenizer.Contains(token) || (!marker && (!text || tokenizer.is_special(token)))) continue;
    if (std::ranges::find(spec.eos, token) != spec.eos.end()) continue;
    texts[i] = std::string(tokenizer.piece(token));
    if (tokenizer.is_special(token)) {
      texts[i].insert(0, 1, kSpecialSign);
    } else if (texts[i].find(kSpecialSign) != std::string::npos) {
      texts[i].clear();  // no UTF-8 text has the byte, so no output has the token
    } else if (spec.alphabet == BpeAlphabet::kCharacters && kind != PieceKind::kByte) {
      texts[i] = ReplaceAll(texts[i], kMetaspace, " ");
    }
  }
  return texts;
}

using Json = nlohmann::ordered_json;
using ExprType = xgrammar::Grammar::Impl::GrammarExprType;

// What the matchers do not enforce; nothing if they enforce all of `grammar`.
std::optional<std::string> NotEnforced(const xgrammar::Grammar& grammar) {
  for (int32_t i = 0; i < grammar->NumRules(); ++i) {
    const auto& rule = grammar->GetRule(i);
    const bool plain = rule.max_tokens < 0 && rule.max_chars < 0 && !rule.is_lazy &&
                       rule.capture_name.empty() && !rule.temperature.has_value() &&
                       grammar->GetSuffixStopInfo(i) == nullptr;
    if (!plain) return fmt::format("the rule {} has attributes in brackets", rule.name);
  }
  for (int32_t i = 0; i < grammar->NumGrammarExprs(); ++i) {
    const ExprType type = grammar->GetGrammarExpr(i).type;
    if (type == ExprType::kToken || type == ExprType::kExcludeToken ||
        type == ExprType::kTokenTagDispatch) {
      return "it names tokens by their numbers";
    }
  }
  return std::nullopt;
}

// The grammar of `json`, which CallXGrammar calls. A whole output of one schema does not need the
// passes that combine grammars.
std::variant<xgrammar::Grammar, xgrammar::StructuralTagError> Read(const std::string& spec,
                                                                   const Json& json) {
  const Json* format = json.contains("format") ? &json["format"] : nullptr;
  const bool schema = format != nullptr && json.size() == 2 && format->size() == 3 &&
                      format->value("type", Json()) == "json_schema" &&
                      format->contains("json_schema") &&
                      format->value("max_whitespace_cnt", Json()).is_number_integer();
  if (!schema) return xgrammar::Grammar::FromStructuralTag(spec);
  return xgrammar::Grammar::FromJSONSchema((*format)["json_schema"].dump(),
                                           /*any_whitespace=*/true,
                                           /*indent=*/std::nullopt,
                                           /*separators=*/std::nullopt,
                                           /*strict_mode=*/true,
                                           (*format)["max_whitespace_cnt"].get<int>());
}

// The grammar of `spec` as it is written, not optimised.
StatusOr<xgrammar::Grammar> ParsedGrammar(const std::string& spec) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson("grammar", spec));
  if (!json.is_object()) return InvalidArgument("the grammar is not valid: it is not an object");
  BATON_RETURN_IF_ERROR(CheckConversionWork(json));
  std::optional<std::string> error;
  std::optional<xgrammar::Grammar> grammar;
  BATON_RETURN_IF_ERROR(CallXGrammar([&] {
    auto parsed = Read(spec, json);
    if (const auto* failed = std::get_if<xgrammar::StructuralTagError>(&parsed)) {
      error = std::visit([](const auto& one) { return std::string(one.what()); }, *failed);
    } else {
      grammar = std::get<xgrammar::Grammar>(parsed);
      NarrowJsonRules(json, *grammar);
      if (spec.find(kGrammarSign) != std::string::npos) ReadSigns(*grammar);
    }
  }));
  if (error.has_value()) return InvalidArgument("the grammar is not valid: {}", *error);
  if (const auto unsupported = NotEnforced(*grammar); unsupported.has_value()) {
    return InvalidArgument("the grammar is not supported: {}", *unsupported);
  }
  return *std::move(grammar);
}

class XGrammarCompiler final : public GrammarCompiler {
 public:
  XGrammarCompiler(const std::vector<std::string>& texts, const GrammarCompilerOptions& options)
      : trie_(std::make_shared<TokenTrie>(TokenTrie::Make(texts))),
        utf8_(std::make_shared<Utf8Tokens>(texts)),
        options_(options) {}

  ~XGrammarCompiler() override { thread_.DropWaiting(); }

  void Compile(const std::string& spec,
               uint64_t client,
               std::weak_ptr<const void> wanted,
               std::function<void(CompiledGrammar)> done) override {
    const Hash128 key = Xxh3Wide(std::as_bytes(std::span(spec)));
    CompiledGrammar answer = std::shared_ptr<const Grammar>();
    {
      std::lock_guard lock(mutex_);
      answer = Find(key);
      if (*answer == nullptr) {
        const Status queued = Enqueue({key, spec}, client);
        if (queued.ok()) {
          return waiting_[key].callers.push_back({std::move(wanted), std::move(done)});
        }
        answer = queued;
      }
    }
    done(std::move(answer));
  }

 private:
  struct Job {
    Hash128 key;
    std::string spec;
  };
  struct Caller {
    std::weak_ptr<const void> wanted;
    std::function<void(CompiledGrammar)> done;
  };
  // The callers that wait for one grammar.
  struct Waiting {
    std::vector<Caller> callers;
    std::set<uint64_t> clients;  // each has a job in the queue; the first one to come compiles
  };
  struct Entry {
    Hash128 key;
    std::shared_ptr<const Grammar> grammar;
  };

  // The grammar of `key`, which becomes the one that was used last; null when it is not kept.
  std::shared_ptr<const Grammar> Find(const Hash128& key) {
    const auto found = kept_.find(key);
    if (found == kept_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->grammar;
  }

  // Keeps `grammar`, and forgets others while there are too many. Those in use go on growing, so
  // the memory is counted each time.
  void Keep(const Hash128& key, std::shared_ptr<const Grammar> grammar) {
    order_.push_front({key, std::move(grammar)});
    kept_[key] = order_.begin();
    size_t used = 0;
    for (const Entry& entry : order_) used += entry.grammar->bytes();
    while (used > options_.cache_bytes && order_.size() > 1) {
      used -= order_.back().grammar->bytes();
      kept_.erase(order_.back().key);
      order_.pop_back();
    }
  }

  // Queues `job` for `client`, unless the same grammar waits in the client's queue.
  Status Enqueue(Job job, uint64_t client) {
    const auto found = waiting_.find(job.key);
    if (found != waiting_.end() && found->second.clients.contains(client)) return OkStatus();
    if (queue_.size(client) >= options_.max_waiting) {
      return MakeStatus(StatusCode::kResourceExhausted,
                        "{} grammars of this client wait to be compiled on this worker, which is "
                        "the limit of one client (max_waiting_grammars)",
                        queue_.size(client));
    }
    waiting_[job.key].clients.insert(client);
    queue_.Push(client, std::move(job));
    thread_.Post([this] { CompileNext(); });
    return OkStatus();
  }

  // Runs once for each job. A job whose grammar was compiled for another client has no effect.
  void CompileNext() {
    Job job;
    bool wanted = false;
    {
      std::lock_guard lock(mutex_);
      job = queue_.Pop();
      const auto found = waiting_.find(job.key);
      if (found == waiting_.end()) return;
      wanted = std::ranges::any_of(found->second.callers,
                                   [](const Caller& one) { return !one.wanted.expired(); });
    }
    const CompiledGrammar grammar =
        wanted ? CompileNow(job.spec)
               : MakeStatus(StatusCode::kCancelled, "no request waits for the grammar any more");
    Waiting waiting;
    {
      std::lock_guard lock(mutex_);
      if (grammar.ok()) Keep(job.key, *grammar);
      waiting = std::move(waiting_[job.key]);
      waiting_.erase(job.key);
    }
    for (const Caller& caller : waiting.callers) caller.done(grammar);
  }

  CompiledGrammar CompileNow(const std::string& spec) const {
    BATON_ASSIGN_OR_RETURN(xgrammar::Grammar parsed, ParsedGrammar(spec));
    CompiledGrammar compiled = InvalidArgument("not compiled");
    BATON_RETURN_IF_ERROR(CallXGrammar([&] {
      const StatusOr<xgrammar::Grammar> grammar = Optimised(std::move(parsed));
      if (grammar.ok()) {
        compiled = std::make_shared<XGrammarGrammar>(*grammar, trie_, utf8_);
      } else {
        compiled = grammar.status();
      }
    }));
    if (compiled.ok()) BATON_RETURN_IF_ERROR(FillFirstMask(**compiled));
    return compiled;
  }

  // The grammar keeps the masks of its first state, so that no step waits for them.
  Status FillFirstMask(const Grammar& grammar) const {
    std::vector<uint32_t> mask(MaskWords(options_.vocabulary));
    const auto matcher = grammar.NewMatcher({});
    matcher->FillMask(mask);
    return matcher->failure();
  }

  const std::shared_ptr<const TokenTrie> trie_;
  const std::shared_ptr<const Utf8Tokens> utf8_;
  const GrammarCompilerOptions options_;
  std::mutex mutex_;  // guards the members below, but not thread_
  std::map<Hash128, Waiting> waiting_;
  RoundRobinQueue<uint64_t, Job> queue_;  // by client
  std::list<Entry> order_;                // used last first
  std::unordered_map<Hash128, std::list<Entry>::iterator> kept_;
  WorkThreads thread_{"grammar", 1};  // the last member, because the thread uses the others
};

}  // namespace

StatusOr<std::unique_ptr<GrammarCompiler>> MakeGrammarCompiler(
    const Tokenizer& tokenizer, const GrammarCompilerOptions& options) {
  if (std::cmp_less(options.vocabulary, tokenizer.vocab_size())) {
    return InvalidArgument(
        "the model has {} tokens and its tokenizer {}; grammars need logits for all tokens",
        options.vocabulary,
        tokenizer.vocab_size());
  }
  return std::make_unique<XGrammarCompiler>(TextsOf(tokenizer), options);
}

Status CheckGrammar(const std::string& spec) {
  BATON_ASSIGN_OR_RETURN(const xgrammar::Grammar parsed, ParsedGrammar(spec));
  BATON_RETURN_IF_ERROR(CheckOptimisingCost(parsed));
  return CheckAllowsOutput(parsed);
}

}  // namespace baton

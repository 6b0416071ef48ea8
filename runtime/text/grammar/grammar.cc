#include "runtime/text/grammar/grammar.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/grammar/automaton.h"
#include "runtime/text/grammar/gbnf_parser.h"
#include "runtime/text/grammar/json_schema.h"
#include "runtime/text/grammar/program.h"
#include "runtime/text/grammar/token_trie.h"
#include "runtime/text/grammar/triggers.h"

namespace bloomery::text {
namespace {

constexpr size_t kBitsOfWord = 64;

std::shared_ptr<const TokenMask> EverythingBut(std::span<const TokenId> refused, size_t tokens) {
  auto mask = std::make_shared<TokenMask>();
  mask->bits.assign((tokens + kBitsOfWord - 1) / kBitsOfWord, ~uint64_t{0});
  if (tokens % kBitsOfWord != 0) mask->bits.back() >>= kBitsOfWord - tokens % kBitsOfWord;
  mask->allowed = tokens;
  for (const TokenId token : refused) {
    uint64_t& word = mask->bits[static_cast<size_t>(token) / kBitsOfWord];
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(token) % kBitsOfWord);
    if ((word & bit) != 0) --mask->allowed;
    word &= ~bit;
  }
  return mask;
}

}  // namespace

Grammar::Grammar(std::shared_ptr<GrammarAutomaton> automaton,
                 std::shared_ptr<const GrammarTriggers> triggers, std::string source)
    : automaton_(std::move(automaton)),
      triggers_(std::move(triggers)),
      source_(std::move(source)) {}

Grammar::~Grammar() = default;

bool Grammar::lazy() const { return triggers_ != nullptr && triggers_->options().lazy; }

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  Begin();
  const GrammarTriggers* triggers = grammar_->triggers_.get();
  if (triggers == nullptr) return;
  if (triggers->options().starts_in_span) {
    phase_ = Phase::kSpan;
  } else if (triggers->options().lazy) {
    phase_ = Phase::kWaiting;
  }
}

void GrammarState::Begin() {
  const GrammarAutomaton::Place start = grammar_->automaton_->Start();
  tables_ = start.tables;
  place_ = start.id;
}

bool GrammarState::Allows(TokenId token) {
  if (phase_ == Phase::kActive) {
    GrammarAutomaton::Place here{tables_, place_};
    return grammar_->automaton_->AfterToken(here, token).id != GrammarTables::kDead;
  }
  GrammarState trial = *this;
  if (trial.AcceptFree(token)) return true;
  refused_.push_back(token);
  return false;
}

const TokenMask& GrammarState::Mask() {
  if (phase_ == Phase::kActive) {
    GrammarAutomaton::Place here{tables_, place_};
    mask_ = grammar_->automaton_->Mask(here);
    tables_ = here.tables;
    place_ = here.id;
  } else {
    mask_ = EverythingBut(refused_, grammar_->automaton_->tokenizer().size());
  }
  return *mask_;
}

bool GrammarState::Accept(TokenId token) {
  if (phase_ == Phase::kActive) return AcceptActive(token);
  GrammarState next = *this;
  if (!next.AcceptFree(token)) return false;
  next.refused_.clear();
  *this = std::move(next);
  return true;
}

bool GrammarState::AcceptActive(TokenId token) {
  GrammarAutomaton::Place here{tables_, place_};
  GrammarAutomaton::Place next = grammar_->automaton_->AfterToken(here, token);
  if (next.id == GrammarTables::kDead) return false;
  tables_ = std::move(next.tables);
  place_ = next.id;
  return true;
}

bool GrammarState::AcceptText(std::string_view text) {
  if (phase_ != Phase::kActive) {
    GrammarState next = *this;
    if (!next.TakeFree(text, kNoToken)) return false;
    *this = std::move(next);
    return true;
  }
  GrammarAutomaton::Place here{tables_, place_};
  GrammarAutomaton::Place next = grammar_->automaton_->AfterText(here, text);
  if (next.id == GrammarTables::kDead) return false;
  tables_ = std::move(next.tables);
  place_ = next.id;
  return true;
}

// A token while nothing is constrained. False where it begins the grammar with what does not fit.
bool GrammarState::AcceptFree(TokenId token) {
  const Tokenizer& tokenizer = grammar_->automaton_->tokenizer();
  if (tokenizer.IsEog(token) && !grammar_->triggers_->FiresOn(token)) return true;
  return TakeFree(tokenizer.Piece(token, SpecialText::kShown), token);
}

bool GrammarState::TakeFree(std::string_view piece, TokenId token) {
  const GrammarTriggers& triggers = *grammar_->triggers_;
  const GrammarOptions& options = triggers.options();
  if (phase_ == Phase::kWaiting && token != kNoToken && triggers.FiresOn(token)) {
    phase_ = Phase::kActive;
    seen_.clear();
    return AcceptActive(token);
  }
  seen_ += piece;
  size_t newest = piece.size();
  for (;;) {
    if (phase_ == Phase::kSpan) {
      const size_t end = PlaceOf(options.span_end);
      const size_t broken = PlaceOf(options.span_break);
      if (end == std::string::npos && broken == std::string::npos) break;
      seen_.erase(0, broken < end ? broken : end + options.span_end.size());
      dropped_ = true;
      newest = seen_.size();
      phase_ = options.lazy ? Phase::kWaiting : Phase::kActive;
      if (phase_ == Phase::kActive) return FeedSeen(0);
    }
    const std::optional<size_t> start = triggers.Start(seen_, newest, !dropped_);
    const size_t span = PlaceOf(options.span_begin);
    const bool opens =
        span != std::string::npos && !dropped_ && seen_.find_first_not_of(" \t\r\n") == span;
    if (opens && (!start || span < *start)) {
      seen_.erase(0, span + options.span_begin.size());
      dropped_ = true;
      phase_ = Phase::kSpan;
      continue;
    }
    if (!start) break;
    phase_ = Phase::kActive;
    return FeedSeen(*start);
  }
  if (seen_.size() > triggers.window()) {
    seen_.erase(0, seen_.size() - triggers.window());
    dropped_ = true;
  }
  return true;
}

// Where `mark` is in the seen text; nowhere where there is none.
size_t GrammarState::PlaceOf(std::string_view mark) const {
  return mark.empty() ? std::string::npos : seen_.find(mark);
}

// The seen text from `start` on is the grammar's first.
bool GrammarState::FeedSeen(size_t start) {
  const std::string text = seen_.substr(start);
  seen_.clear();
  return AcceptText(text);
}

bool GrammarState::constrains() const { return phase_ == Phase::kActive; }

bool GrammarState::complete() const {
  return phase_ != Phase::kActive || grammar_->automaton_->Accepting({tables_, place_});
}

bool GrammarState::exhausted() const {
  return phase_ == Phase::kActive && grammar_->automaton_->Exhausted({tables_, place_});
}

// What was compiled last comes first; what was not asked for the longest is forgotten.
struct GrammarCompiler::Shared {
  struct Kept {
    std::string source;
    std::vector<TokenId> preserved;
    bool blanks_first;
    std::shared_ptr<GrammarAutomaton> automaton;
  };

  explicit Shared(const Tokenizer& the_tokenizer) : tokenizer(the_tokenizer) {}

  const Tokenizer& tokenizer;
  std::mutex mutex;
  std::shared_ptr<const TokenTrie> trie;  // made for the first grammar
  std::list<Kept> kept;

  std::shared_ptr<GrammarAutomaton> Find(std::string_view source,
                                         const std::vector<TokenId>& preserved, bool blanks_first) {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(kept, [&](const Kept& each) {
      return each.source == source && each.preserved == preserved &&
             each.blanks_first == blanks_first;
    });
    if (found == kept.end()) return nullptr;
    kept.splice(kept.begin(), kept, found);
    return found->automaton;
  }

  void Keep(Kept entry) {
    const std::lock_guard lock(mutex);
    kept.push_front(std::move(entry));
    if (kept.size() > limits::kGrammarsKeptMax) kept.pop_back();
  }

  std::shared_ptr<const TokenTrie> Trie() {
    const std::lock_guard lock(mutex);
    if (!trie) trie = std::make_shared<const TokenTrie>(tokenizer);
    return trie;
  }
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer)
    : shared_(std::make_unique<Shared>(tokenizer)) {}

GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Grammar> GrammarCompiler::FromGbnf(std::string_view source,
                                                         const GrammarOptions& options) {
  std::shared_ptr<const GrammarTriggers> triggers;
  if (options.lazy || options.starts_in_span) {
    triggers = std::make_shared<const GrammarTriggers>(options, shared_->tokenizer);
  }
  std::vector<TokenId> preserved = options.preserved_tokens;
  std::erase_if(preserved, [&](TokenId token) {
    return !shared_->tokenizer.Contains(token) || !shared_->tokenizer.IsControl(token) ||
           shared_->tokenizer.IsEog(token);
  });
  std::sort(preserved.begin(), preserved.end());
  preserved.erase(std::unique(preserved.begin(), preserved.end()), preserved.end());
  const bool blanks_first = options.starts_in_span && !options.lazy;
  std::shared_ptr<GrammarAutomaton> automaton = shared_->Find(source, preserved, blanks_first);
  if (!automaton) {
    const GbnfTree tree = ParseGbnf(source);
    automaton = std::make_shared<GrammarAutomaton>(
        shared_->tokenizer, shared_->Trie(), CompileProgram(tree, shared_->tokenizer, blanks_first),
        preserved);
    shared_->Keep({std::string(source), std::move(preserved), blanks_first, automaton});
  }
  return std::make_shared<const Grammar>(std::move(automaton), std::move(triggers),
                                         std::string(source));
}

std::shared_ptr<const Grammar> GrammarCompiler::FromJsonSchema(std::string_view schema,
                                                               const GrammarOptions& options) {
  return FromGbnf(JsonSchemaToGbnf(schema), options);
}

}  // namespace bloomery::text

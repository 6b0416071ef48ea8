#include "runtime/text/grammar/program.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::text {
namespace {

using Kind = ProgramNode::Kind;

// Models write a newline or two behind the end of their thinking.
constexpr int kBlanksFirstMax = 4;

// Writes the tree down as nodes, each part with the node that follows it, so from the back.
class Writer {
 public:
  Writer(const GbnfTree& tree, const Tokenizer& tokenizer, GrammarProgram& program)
      : tree_(tree), tokenizer_(tokenizer), program_(program) {}

  void WriteRules() {
    for (const GbnfRule& rule : tree_.rules) {
      place_ = rule.place;
      const uint32_t accept = Add({.kind = Kind::kAccept});
      program_.rules.push_back({.start = Write(rule.body, accept)});
    }
  }

  void WriteStart(bool blanks_first) {
    const uint32_t accept = Add({.kind = Kind::kAccept});
    uint32_t start = Add({.kind = Kind::kCall, .next = accept, .other = tree_.root});
    for (int i = 0; blanks_first && i < kBlanksFirstMax; ++i) {
      const uint32_t blank = WriteRanges({{U'\t', U'\n'}, {U'\r', U'\r'}, {U' ', U' '}}, start);
      start = Add({.kind = Kind::kSplit, .next = start, .other = blank});
    }
    program_.start = start;
  }

 private:
  uint32_t Add(const ProgramNode& node) {
    if (program_.nodes.size() >= limits::kGrammarNodesMax) FailSize();
    program_.nodes.push_back(node);
    return static_cast<uint32_t>(program_.nodes.size() - 1);
  }

  [[noreturn]] void FailSize() const {
    throw GrammarError(place_,
                       "the grammar is too large with its repetitions written out: more "
                       "than " +
                           std::to_string(limits::kGrammarNodesMax) + " nodes");
  }

  uint32_t Write(uint32_t number, uint32_t next) {
    // Empty parts make no nodes, but a repetition of them takes time all the same.
    if (++written_ > 4 * limits::kGrammarNodesMax) FailSize();
    const GbnfNode& node = tree_.nodes[number];
    switch (node.kind) {
      case GbnfNode::Kind::kText:
        return WriteText(node.text, next);
      case GbnfNode::Kind::kClass:
        return WriteRanges(node.ranges, next);
      case GbnfNode::Kind::kRule:
        return Add({.kind = Kind::kCall, .next = next, .other = node.number});
      case GbnfNode::Kind::kToken:
        return Add(
            {.kind = Kind::kToken, .negated = node.negated, .next = next, .other = TokenOf(node)});
      case GbnfNode::Kind::kSequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
          next = Write(*part, next);
        }
        return next;
      case GbnfNode::Kind::kChoice: {
        uint32_t chosen = Write(node.parts.back(), next);
        for (auto part = node.parts.rbegin() + 1; part != node.parts.rend(); ++part) {
          const uint32_t one = Write(*part, next);
          chosen = Add({.kind = Kind::kSplit, .next = one, .other = chosen});
        }
        return chosen;
      }
      case GbnfNode::Kind::kRepeat:
        return WriteRepeat(node, next);
    }
    return next;
  }

  uint32_t WriteRepeat(const GbnfNode& node, uint32_t next) {
    place_ = node.place;
    const uint32_t part = node.parts[0];
    uint32_t copies = node.least;
    uint32_t begin = next;
    if (node.most == kNoUpperBound) {
      const uint32_t loop = Add({.kind = Kind::kSplit, .next = next, .other = next});
      const uint32_t body = Write(part, loop);
      program_.nodes[loop].next = body;
      begin = loop;
      if (copies > 0) {
        begin = body;  // once, and then the loop
        --copies;
      }
    } else {
      for (uint32_t i = node.least; i < node.most; ++i) {
        const uint32_t body = Write(part, begin);
        begin = Add({.kind = Kind::kSplit, .next = body, .other = next});
      }
    }
    for (uint32_t i = 0; i < copies; ++i) begin = Write(part, begin);
    return begin;
  }

  uint32_t WriteText(const std::string& text, uint32_t next) {
    for (auto c = text.rbegin(); c != text.rend(); ++c) {
      const auto byte = static_cast<uint8_t>(*c);
      next = Add({.kind = Kind::kBytes, .first = byte, .last = byte, .next = next});
    }
    return next;
  }

  // Equal ends of the characters' byte sequences are shared.
  uint32_t WriteRanges(const CodeRanges& ranges, uint32_t next) {
    const std::vector<Utf8Sequence> sequences = Utf8Sequences(ranges);
    if (sequences.empty()) return Add({.kind = Kind::kBytes, .next = next});  // matches nothing
    std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> shared;
    uint32_t chosen = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      uint32_t begin = next;
      for (uint32_t k = sequences[i].length; k > 0; --k) {
        const auto [first, last] = sequences[i].bytes[k - 1];
        const auto [entry, added] = shared.try_emplace({first, last, begin}, 0);
        if (added) {
          entry->second = Add({.kind = Kind::kBytes, .first = first, .last = last, .next = begin});
        }
        begin = entry->second;
      }
      chosen = i == 0 ? begin : Add({.kind = Kind::kSplit, .next = begin, .other = chosen});
    }
    return chosen;
  }

  uint32_t TokenOf(const GbnfNode& node) const {
    if (node.text.empty()) {
      if (node.number >= tokenizer_.size()) {
        throw GrammarError(node.place, "token " + std::to_string(node.number) +
                                           " is outside the vocabulary of " +
                                           std::to_string(tokenizer_.size()));
      }
      return node.number;
    }
    const TokenId token = tokenizer_.Find(node.text);
    if (token == kNoToken) {
      throw GrammarError(node.place,
                         "the vocabulary has no token that reads '" + Printable(node.text) + "'");
    }
    return static_cast<uint32_t>(token);
  }

  const GbnfTree& tree_;
  const Tokenizer& tokenizer_;
  GrammarProgram& program_;
  SourcePlace place_;
  size_t written_ = 0;
};

// Which nodes reach their rule's end without a byte: from the ends backwards.
std::vector<bool> NullableNodes(const GrammarProgram& program) {
  const size_t count = program.nodes.size();
  std::vector<std::pair<uint32_t, uint32_t>> users;  // (node, a node that looks at it)
  for (uint32_t n = 0; n < count; ++n) {
    const ProgramNode& node = program.nodes[n];
    if (node.kind == Kind::kSplit) {
      users.emplace_back(node.next, n);
      users.emplace_back(node.other, n);
    } else if (node.kind == Kind::kCall) {
      users.emplace_back(node.next, n);
      users.emplace_back(program.rules[node.other].start, n);
    }
  }
  std::sort(users.begin(), users.end());
  std::vector<bool> nullable(count);
  std::vector<uint32_t> work;
  for (uint32_t n = 0; n < count; ++n) {
    if (program.nodes[n].kind != Kind::kAccept) continue;
    nullable[n] = true;
    work.push_back(n);
  }
  while (!work.empty()) {
    const uint32_t reached = work.back();
    work.pop_back();
    auto user = std::lower_bound(users.begin(), users.end(), std::pair(reached, 0u));
    for (; user != users.end() && user->first == reached; ++user) {
      const uint32_t n = user->second;
      const ProgramNode& node = program.nodes[n];
      if (nullable[n]) continue;
      if (node.kind == Kind::kCall &&
          !(nullable[node.next] && nullable[program.rules[node.other].start])) {
        continue;
      }
      nullable[n] = true;
      work.push_back(n);
    }
  }
  return nullable;
}

// The rules that may be called from `start` before a byte.
std::vector<uint32_t> FirstCalls(const GrammarProgram& program, uint32_t start,
                                 std::vector<bool>& seen) {
  std::vector<uint32_t> called;
  std::vector<uint32_t> work{start};
  std::vector<uint32_t> visited;
  while (!work.empty()) {
    const uint32_t n = work.back();
    work.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    visited.push_back(n);
    const ProgramNode& node = program.nodes[n];
    if (node.kind == Kind::kSplit) {
      work.push_back(node.next);
      work.push_back(node.other);
    } else if (node.kind == Kind::kCall) {
      called.push_back(node.other);
      if (program.rules[node.other].nullable) work.push_back(node.next);
    }
  }
  for (const uint32_t n : visited) seen[n] = false;
  std::sort(called.begin(), called.end());
  called.erase(std::unique(called.begin(), called.end()), called.end());
  return called;
}

// Gives callers a lower rank than what they call first; a cycle is left recursion.
class Ranking {
 public:
  Ranking(const GbnfTree& tree, GrammarProgram& program) : tree_(tree), program_(program) {}

  void Rank() {
    const size_t count = program_.rules.size();
    std::vector<bool> seen(program_.nodes.size());
    for (const ProgramRule& rule : program_.rules) {
      calls_.push_back(FirstCalls(program_, rule.start, seen));
    }
    state_.assign(count, State::kNew);
    next_rank_ = static_cast<uint32_t>(count);
    for (uint32_t rule = 0; rule < count; ++rule) Visit(rule);
  }

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };

  // Depth first without recursion; a rule gets its rank when all that it calls have theirs.
  void Visit(uint32_t first) {
    if (state_[first] != State::kNew) return;
    path_.assign(1, {first, 0});
    state_[first] = State::kOpen;
    while (!path_.empty()) {
      auto& [rule, done] = path_.back();
      if (done == calls_[rule].size()) {
        state_[rule] = State::kDone;
        program_.rules[rule].rank = --next_rank_;
        path_.pop_back();
        continue;
      }
      const uint32_t called = calls_[rule][done++];
      if (state_[called] == State::kOpen) FailCycle(called);
      if (state_[called] == State::kNew) {
        state_[called] = State::kOpen;
        path_.emplace_back(called, 0);
      }
    }
  }

  [[noreturn]] void FailCycle(uint32_t rule) const {
    std::string cycle;
    bool inside = false;
    for (const auto& [each, done] : path_) {
      inside = inside || each == rule;
      if (inside && cycle.size() < 200) cycle += Printable(tree_.rules[each].name) + " -> ";
    }
    const GbnfRule& named = tree_.rules[rule];
    throw GrammarError(named.place, "the rule '" + Printable(named.name) +
                                        "' is left-recursive: " + cycle + Printable(named.name));
  }

  const GbnfTree& tree_;
  GrammarProgram& program_;
  std::vector<std::vector<uint32_t>> calls_;
  std::vector<State> state_;
  std::vector<std::pair<uint32_t, size_t>> path_;
  uint32_t next_rank_ = 0;
};

void ClassifyBytes(GrammarProgram& program) {
  std::array<bool, 257> begins{};
  for (const ProgramNode& node : program.nodes) {
    if (node.kind != Kind::kBytes || node.first > node.last) continue;
    begins[node.first] = true;
    begins[node.last + 1u] = true;
  }
  uint32_t current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    program.classes[byte] = static_cast<uint8_t>(current);
  }
  program.class_count = current + 1;
}

}  // namespace

GrammarProgram CompileProgram(const GbnfTree& tree, const Tokenizer& tokenizer, bool blanks_first) {
  GrammarProgram program;
  Writer writer(tree, tokenizer, program);
  writer.WriteRules();
  writer.WriteStart(blanks_first);
  const std::vector<bool> nullable = NullableNodes(program);
  for (ProgramRule& rule : program.rules) rule.nullable = nullable[rule.start];
  Ranking(tree, program).Rank();
  ClassifyBytes(program);
  return program;
}

}  // namespace bloomery::text

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/grammar/gbnf_text.h"
#include "runtime/text/grammar/json_schema.h"
#include "runtime/text/grammar/schema_converter.h"
#include "runtime/text/grammar/writer_state.h"

namespace bloomery::text {
namespace {

constexpr std::string_view kHex = "0123456789ABCDEF";

void AppendHex(uint32_t value, int digits, std::string& out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[value >> shift & 15];
}

// A character as both literals and classes take it.
void AppendEscaped(char32_t c, std::string& out) {
  const auto value = static_cast<uint32_t>(c);
  if (value <= 0xFF) {
    out += "\\x";
    AppendHex(value, 2, out);
  } else if (value <= 0xFFFF) {
    out += "\\u";
    AppendHex(value, 4, out);
  } else {
    out += "\\U";
    AppendHex(value, 8, out);
  }
}

bool IsWordCharacter(char32_t c) {
  return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9');
}

}  // namespace

std::string GbnfClass(const CodeRanges& ranges) {
  std::string out = "[";
  const auto append = [&](char32_t c) {
    if (IsWordCharacter(c)) {
      out += static_cast<char>(c);
    } else {
      AppendEscaped(c, out);
    }
  };
  for (const CodeRange& range : ranges) {
    append(range.first);
    if (range.last == range.first) continue;
    out += '-';
    append(range.last);
  }
  return out + "]";
}

std::string GbnfWriter::Literal(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Character c = DecodeUtf8(text);
    if (c.code_point == U'"' || c.code_point == U'\\') {
      out += '\\';
      out += static_cast<char>(c.code_point);
    } else if (c.code_point == U'\n') {
      out += "\\n";
    } else if (c.code_point < 0x20 || c.code_point == 0x7F) {
      AppendEscaped(c.code_point, out);
    } else {
      AppendUtf8(c.code_point, out);
    }
    text.remove_prefix(c.length);
  }
  return out + "\"";
}

GbnfWriter::GbnfWriter() : state_(std::make_unique<State>()) {}
GbnfWriter::~GbnfWriter() = default;

std::string GbnfWriter::AddRule(std::string_view name, std::string body) {
  return state_->Add(State::Fit(name), std::move(body));
}

// Words with dashes, at most so long.
std::string GbnfWriter::State::Fit(std::string_view name) {
  constexpr size_t kNameBytesMax = 60;
  std::string fit;
  for (const char c : name.substr(0, kNameBytesMax)) {
    if (IsWordCharacter(static_cast<unsigned char>(c))) {
      fit += c;
    } else if (!fit.empty() && fit.back() != '-') {
      fit += '-';
    }
  }
  while (!fit.empty() && fit.back() == '-') fit.pop_back();
  return fit.empty() ? "rule" : fit;
}

std::string GbnfWriter::State::Add(const std::string& name, std::string body) {
  std::string key = name + "\n" + body;
  const auto known = added.find(key);
  if (known != added.end()) return known->second;
  std::string reserved = Reserve(name);
  Define(reserved, std::move(body));
  added.emplace(std::move(key), reserved);
  return reserved;
}

std::string GbnfWriter::State::Reserve(std::string_view name) {
  const std::string fit = Fit(name);
  if (!places.contains(fit)) return ReserveExactly(fit);
  size_t& number = tries[fit];
  while (places.contains(fit + "-" + std::to_string(number + 1))) ++number;
  return ReserveExactly(fit + "-" + std::to_string(++number));
}

std::string GbnfWriter::State::ReserveExactly(const std::string& name) {
  places.emplace(name, rules.size());
  rules.push_back({name, {}});
  Count(name.size() + 8);
  return name;
}

void GbnfWriter::State::Define(const std::string& name, std::string body) {
  Count(body.size());
  rules[places.at(name)].body = std::move(body);
}

void GbnfWriter::State::Count(size_t more) {
  bytes += more;
  if (bytes > limits::kGrammarSourceBytesMax) {
    throw Error(ErrorKind::kBadRequest, "JSON schema: it makes a grammar of more than " +
                                            std::to_string(limits::kGrammarSourceBytesMax) +
                                            " bytes");
  }
}

std::string GbnfWriter::AddPartOfSchema(std::string_view name, const rapidjson::Value& root,
                                        const rapidjson::Value& part,
                                        std::vector<std::string> path) {
  return SchemaConverter(*state_, root, {}).ConvertPart(name, part, std::move(path));
}

std::string GbnfWriter::AddSchema(std::string_view name, const rapidjson::Value& schema) {
  return SchemaConverter(*state_, schema, {}).Convert(name);
}

std::string GbnfWriter::AddObjectSchema(std::string_view name, const rapidjson::Value& schema) {
  return SchemaConverter(*state_, schema, {}).Convert(name, SchemaConverter::Want::kObject);
}

void GbnfWriter::CheckGivesObjects(const rapidjson::Value& schema) {
  State none;
  SchemaConverter(none, schema, {}).CheckGivesObjects();
}

namespace {

// Marks that a text is searched for all at once, as Aho and Corasick do.
class Marks {
 public:
  enum class Found { kNothing, kStop, kNever };

  Marks(std::string_view stop, std::string_view never) {
    Add(stop, Found::kStop);
    if (!never.empty()) Add(never, Found::kNever);
    // Nodes lie behind their parents, but not those of the second mark behind all shorter ones.
    std::vector<size_t> order{0};
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t at = order[i];
      for (const auto& [c, child] : nodes_[at].next) {
        nodes_[child].border = at == 0 ? 0 : After(nodes_[at].border, c);
        if (nodes_[child].found == Found::kNothing) {
          nodes_[child].found = nodes_[nodes_[child].border].found;
        }
        order.push_back(child);
      }
    }
  }

  size_t size() const { return nodes_.size(); }
  Found found(size_t node) const { return nodes_[node].found; }

  // Where each character leads that leads elsewhere than to the beginning.
  std::map<char32_t, size_t> Ways(size_t node) const {
    std::map<char32_t, size_t> ways;
    for (size_t k = node;; k = nodes_[k].border) {
      ways.insert(nodes_[k].next.begin(), nodes_[k].next.end());
      if (k == 0) return ways;
    }
  }

 private:
  struct Node {
    std::map<char32_t, size_t> next;
    size_t border = 0;  // the longest proper end of this node's text that is a node
    Found found = Found::kNothing;
  };

  void Add(std::string_view mark, Found found) {
    size_t at = 0;
    while (!mark.empty()) {
      const Utf8Character c = DecodeUtf8(mark);
      const auto [way, added] = nodes_[at].next.try_emplace(c.code_point, nodes_.size());
      at = way->second;
      if (added) nodes_.emplace_back();
      mark.remove_prefix(c.length);
    }
    nodes_[at].found = found;
  }

  size_t After(size_t node, char32_t c) const {
    const std::map<char32_t, size_t> ways = Ways(node);
    const auto way = ways.find(c);
    return way == ways.end() ? 0 : way->second;
  }

  std::vector<Node> nodes_{1};
};

}  // namespace

// One rule for each node: for what the text so far ends with.
std::string GbnfWriter::AddTextThrough(std::string_view name, std::string_view stop,
                                       std::string_view never) {
  const Marks marks(stop, never);
  std::vector<std::string> names(marks.size());
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks.found(i) == Marks::Found::kNothing) names[i] = state_->Reserve(name);
  }
  for (size_t i = 0; i < marks.size(); ++i) {
    if (names[i].empty()) continue;
    std::string body;
    CodeRanges known;
    for (const auto& [c, node] : marks.Ways(i)) {
      known.push_back({c, c});
      if (marks.found(node) == Marks::Found::kNever) continue;
      body += GbnfClass({{c, c}}) + " " + names[node] + " | ";
    }
    body += GbnfClass(Complement(Normalised(known))) + " " + names[0];
    state_->Define(names[i], std::move(body));
  }
  return names[0];
}

std::string GbnfWriter::Source() const {
  std::string source;
  source.reserve(state_->bytes);
  const auto append = [&](const State::Rule& rule) {
    source += rule.name + " ::= " + rule.body + "\n";
  };
  const auto root = state_->places.find("root");
  if (root != state_->places.end()) append(state_->rules[root->second]);
  for (const State::Rule& rule : state_->rules) {
    if (rule.name != "root") append(rule);
  }
  return source;
}

}  // namespace bloomery::text

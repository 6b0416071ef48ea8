#include "runtime/memory/wishes.h"

#include <algorithm>
#include <memory>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::memory {
namespace {

constexpr const char* kFlag = "--override-tensor ";

// A tensor's name is short: an expression that needs more than this is not meant for one.
constexpr uint32_t kMatchSteps = 1'000'000;
constexpr uint32_t kMatchHeapKib = 4096;

[[noreturn]] void Refuse(const std::string& text) { throw Error(ErrorKind::kUsage, text); }

class Expression {
 public:
  explicit Expression(const TensorRule& rule) : text_(Printable(rule.Text())) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rule.pattern.data()),
                              rule.pattern.size(), PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C,
                              &error, &at, nullptr));
    if (code_ == nullptr) {
      Refuse(kFlag + text_ + ": " + Reason(error) + ", at character " + std::to_string(at));
    }
    data_.reset(pcre2_match_data_create(1, nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    if (data_ == nullptr || context_ == nullptr) {
      throw Error(ErrorKind::kNoMemory, kFlag + text_ + ": no memory for its expression");
    }
    pcre2_set_match_limit(context_.get(), kMatchSteps);
    pcre2_set_heap_limit(context_.get(), kMatchHeapKib);
  }

  bool FoundIn(std::string_view name) const {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                  name.size(), 0, 0, data_.get(), context_.get());
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found >= 0;
    Refuse(kFlag + text_ + ": looking for it in '" + Printable(name) + "': " + Reason(found));
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };

  static std::string Reason(int error) {
    std::array<PCRE2_UCHAR, 128> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
  }

  std::string text_;
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

bool IsCard(std::string_view place) {
  constexpr std::string_view kCuda = "CUDA";
  if (place == "card") return true;
  return place.size() > kCuda.size() && place.starts_with(kCuda) &&
         std::ranges::all_of(place.substr(kCuda.size()),
                             [](char c) { return c >= '0' && c <= '9'; });
}

// The rules with their expressions, and which of them were found in a name.
class Rules {
 public:
  explicit Rules(std::span<const TensorRule> rules) : rules_(rules), used_(rules.size()) {
    for (const TensorRule& rule : rules) expressions_.emplace_back(rule);
  }

  const TensorRule* Find(std::string_view name) {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (!expressions_[i].FoundIn(name)) continue;
      used_[i] = true;
      return &rules_[i];
    }
    return nullptr;
  }

  void CheckUsed() const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (used_[i]) continue;
      Refuse(kFlag + Printable(rules_[i].Text()) +
             ": it says nothing about this model: found in no tensor's name, or only where an "
             "earlier rule was found");
    }
  }

 private:
  std::span<const TensorRule> rules_;
  std::vector<Expression> expressions_;
  std::vector<bool> used_;
};

// What the rules say of a bank, all of whose parts lie together.
const TensorRule* RuleOf(const BankNames& bank, Rules& rules) {
  std::array<const TensorRule*, 3> found{};
  for (size_t i = 0; i < found.size(); ++i) found.at(i) = rules.Find(bank.tensors.at(i));
  for (size_t i = 0; i < found.size(); ++i) {
    const auto said = [](const TensorRule* rule) {
      return rule == nullptr ? 0 : rule->OnHost() ? 1 : 2;
    };
    if (said(found.at(i)) != said(found[0])) {
      const size_t ruled = found.at(i) != nullptr ? i : 0;
      Refuse(kFlag + Printable(found.at(ruled)->Text()) + ": it is found in '" +
             bank.tensors.at(ruled) + "', and the same is not said of '" +
             bank.tensors.at(ruled == 0 ? i : 0) + "': an expert's gate, up and down lie together");
    }
  }
  return found[0];
}

// `what_lies`: " the experts of layer 3 lie", on `card`.
void CheckCard(const TensorRule& rule, std::span<const std::string> cards, const std::string& card,
               const std::string& what_lies) {
  if (cards.empty() || rule.OnHost() || rule.place == "card" || rule.place == card) return;
  const std::string refused = kFlag + Printable(rule.Text()) + ":";
  if (std::ranges::find(cards, rule.place) != cards.end()) {
    Refuse(refused + what_lies + " on " + card + ", not on " + rule.place +
           "; rules move nothing between cards, --tensor-split moves layers");
  }
  std::string names;
  for (const std::string& each : cards) names += (names.empty() ? "" : ", ") + each;
  Refuse(refused + " the model is planned for " + names + "; --device names the cards");
}

}  // namespace

std::vector<TensorRule> ParseTensorRules(std::string_view text) {
  std::vector<TensorRule> rules;
  size_t from = 0;
  for (size_t end = text.find(',');; end = text.find(',', end + 1)) {
    const bool last = end == std::string_view::npos;
    const std::string_view part = text.substr(from, last ? end : end - from);
    const size_t equals = part.rfind('=');
    if (equals != std::string_view::npos && equals > 0) {
      const TensorRule rule{std::string(part.substr(0, equals)),
                            std::string(part.substr(equals + 1))};
      if (rule.OnHost() || IsCard(rule.place)) {
        static_cast<void>(Expression(rule));
        rules.push_back(rule);
        from = last ? text.size() : end + 1;
      }
    }
    if (!last) continue;
    if (from < text.size() || rules.empty() || text.ends_with(',')) {
      Refuse("'" + Printable(text.substr(from)) +
             "': expected REGEX=PLACE, the place CPU or host, or card or CUDA0");
    }
    return rules;
  }
}

std::string PlacementRequest::KeptFromCard(int32_t layer, uint32_t layers) const {
  const auto at = static_cast<uint32_t>(layer);
  if (layer >= 0 && at < host_expert_layers) {
    return host_expert_layers == UINT32_MAX ? "--cpu-moe"
                                            : "--n-cpu-moe " + std::to_string(host_expert_layers);
  }
  if (layer >= 0 && card_layers && *card_layers < layers && at < layers - *card_layers) {
    return "--gpu-layers " + std::to_string(*card_layers);
  }
  return "";
}

std::vector<BankWish> WishesOf(const PlacementRequest& request, uint32_t layers,
                               std::span<const BankNames> banks, std::span<const OtherName> others,
                               std::span<const std::string> cards) {
  Rules rules(request.rules);
  std::vector<BankWish> wishes;
  for (const BankNames& bank : banks) {
    const TensorRule* rule = RuleOf(bank, rules);
    const std::string flag = request.KeptFromCard(bank.layer, layers);
    const std::string of_layer = " the experts of layer " + std::to_string(bank.layer);
    if (rule != nullptr) CheckCard(*rule, cards, bank.card, of_layer + " lie");
    if (rule != nullptr && !rule->OnHost() && !flag.empty()) {
      Refuse(kFlag + Printable(rule->Text()) + " puts" + of_layer + " on the card, and " + flag +
             " keeps them with the host");
    }
    const bool host = rule != nullptr ? rule->OnHost() : !flag.empty();
    if (host && request.place == Place::kCard) {
      Refuse("--place card puts everything on the card, and " +
             (rule != nullptr ? kFlag + Printable(rule->Text()) : flag) + " keeps" + of_layer +
             " with the host");
    }
    wishes.push_back(host ? BankWish::kHost : rule != nullptr ? BankWish::kCard : BankWish::kFree);
  }
  for (const OtherName& other : others) {
    const TensorRule* rule = rules.Find(other.tensor);
    if (rule == nullptr) continue;
    const std::string quoted = "'" + Printable(other.tensor) + "'";
    CheckCard(*rule, cards, other.card, " " + quoted + " lies");
    if (!rule->OnHost()) continue;
    Refuse(kFlag + Printable(rule->Text()) + ": " + quoted +
           " is no routed expert; beside a card only those lie with the host in this version");
  }
  rules.CheckUsed();
  return wishes;
}

}  // namespace bloomery::memory

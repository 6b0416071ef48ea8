// A plugin that reads and writes: when its program is built it asks the host for a text extension
// (the one its model names), takes the model's sentence apart and puts it together again, and says
// in the host's log what it got. Its graph is the least that gives logits.
#include <bloomery/text.h>

#include <bloomery/bloomery.hpp>
#include <string>
#include <vector>

namespace sdk = bloomery::sdk;

namespace {

class Scribe {
 public:
  static int32_t Probe(const sdk::Model& model) {
    if (model.arch() != "scribe") sdk::Refuse("not a model of the scribe");
    return 50;
  }

  explicit Scribe(const sdk::Context& context)
      : host_(context.host),
        wanted_(context.model.Str("scribe.extension")),
        sentence_(context.model.Str("scribe.sentence")),
        vocabulary_(context.model.GetTensor("token_embd.weight").ne[1]) {
    Say("while created", host_.Extension(BL_EXT_TEXT_1) == nullptr ? "nothing" : "a table");
  }

  void Describe(sdk::Seat& seat) {
    seat.layers = 1;
    seat.vocabulary = vocabulary_;
    seat.context_trained = 64;
    const auto table = [&](bl_role role, uint32_t flags) {
      return seat.AddWeight(
          {.pattern = "token_embd.weight", .role = role, .ne = {32, vocabulary_}, .flags = flags});
    };
    embedding_ = table(BL_ROLE_TABLE, 0);
    head_ = table(BL_ROLE_HEAD, BL_WEIGHT_ALIAS);
    seat.AddEntry<&Scribe::BuildMain>({.name = "main"});
  }

  void BuildMain(sdk::Graph& g, const bl_build& build) const {
    const auto* text = static_cast<const bl_text_1*>(host_.Extension(wanted_));
    if (text == nullptr) sdk::Refuse("the host has no " + wanted_);
    if (build.rows == 1) Read(*text);
    g.Export("logits", g.Head(g.SelectRows(g.Embed(g.Tokens(), embedding_)), head_));
  }

 private:
  void Say(const char* what, const std::string& text) const {
    host_.Log(BL_LOG_INFO, std::string("scribe, ") + what + ": " + text);
  }

  // As any caller of the table has to: once for the room that is needed, once for the items.
  void Read(const bl_text_1& text) const {
    if (text.size < sizeof(bl_text_1)) sdk::Refuse("the table is too short");
    const bl_str sentence{sentence_.data(), sentence_.size()};
    uint64_t needed = 0;
    Check(text.tokenise(text.self, sentence, 1, nullptr, 0, &needed));
    std::vector<int32_t> ids(needed);
    Check(text.tokenise(text.self, sentence, 1, ids.data(), ids.size(), &needed));
    std::string listed;
    for (const int32_t id : ids) listed += (listed.empty() ? "" : " ") + std::to_string(id);
    Say("ids", listed);
    Check(text.detokenise(text.self, ids.data(), ids.size(), nullptr, 0, &needed));
    std::string back(needed, '\0');
    Check(text.detokenise(text.self, ids.data(), ids.size(), back.data(), back.size(), &needed));
    Say("back", back);
    const int32_t foreign = -1;
    Say("a foreign id",
        std::to_string(text.detokenise(text.self, &foreign, 1, nullptr, 0, &needed)));
  }
  static void Check(bl_status status) {
    if (status != BL_OK) throw sdk::Failure(status, "the host's text extension refused a call");
  }

  sdk::Host host_;
  std::string wanted_, sentence_;
  uint64_t vocabulary_;
  sdk::Weight embedding_, head_;
};

}  // namespace

BLOOMERY_PLUGIN(Scribe, "scribe", "0.1.0")

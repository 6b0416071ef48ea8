#include "runtime/apps/tools/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "runtime/apps/tools/parallel.h"
#include "runtime/base/error.h"
#include "runtime/ops/row_codec.h"

namespace bloomery::apps {
namespace {

// Enough that two rows of a matrix share a piece at one place for one pair in two thousand.
constexpr size_t kPoolPieces = 2048;
// Share of an embedding's length that is its topic's direction.
constexpr double kTopicShare = 0.5;

auto EncoderOf(model::TensorType type) {
  const auto encode = ops::RowCodecOf(static_cast<uint32_t>(type)).encode;
  if (encode == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                "this build does not write " + std::string(model::Info(type).name));
  }
  return encode;
}

// How many of the `picks` largest of `experts` normal logits are among the first `picks`, to which
// `boost` is added; the mean share.
double ShareOf(double boost, uint64_t experts, uint64_t picks) {
  constexpr int kTrials = 200;
  Random random(1, "share");
  std::vector<std::pair<double, bool>> logits(experts);
  uint64_t hits = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    for (uint64_t e = 0; e < experts; ++e) {
      const bool own = e < picks;
      logits[e] = {double{random.Normal()} + (own ? boost : 0.0), own};
    }
    std::nth_element(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(picks) - 1,
                     logits.end(), std::greater());
    for (uint64_t i = 0; i < picks; ++i) hits += logits[i].second ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(kTrials * picks);
}

// The boost that gives the share, by bisection; the largest one for a share of 1.
double BoostFor(double share, uint64_t experts, uint64_t picks) {
  double low = 0, high = 16;
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    (ShareOf(middle, experts, picks) < share ? low : high) = middle;
  }
  return high;
}

}  // namespace

Random::Random(uint64_t seed, std::string_view name) : state_(seed) {
  constexpr uint64_t kFnvPrime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a's start
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  state_ = Next() ^ hash;
}

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

float Random::Normal() {
  const uint64_t word = Next();
  const auto sum = static_cast<int64_t>((word & 0xffff) + (word >> 16 & 0xffff) +
                                        (word >> 32 & 0xffff) + (word >> 48));
  constexpr int64_t kMean = 2 * 0xffff;
  constexpr double kDeviation = 65536 / 1.7320508075688772;  // of four uniforms of 16 bits
  return static_cast<float>(static_cast<double>(sum - kMean) / kDeviation);
}

BlockPool::BlockPool(model::TensorType type, size_t unit, double deviation, uint64_t seed,
                     int32_t threads)
    : unit_bytes_(unit / model::Info(type).block_values * model::Info(type).block_bytes),
      bytes_(kPoolPieces * unit_bytes_) {
  EncoderOf(type);
  constexpr size_t kGroup = 64;
  ParallelFor(threads, kPoolPieces / kGroup, [&](size_t group) {
    Random random(seed, "pool " + std::to_string(group));
    std::vector<float> values(unit);
    for (size_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      for (float& value : values) {
        value = static_cast<float>(double{random.Normal()} * deviation);
      }
      EncodeRow(type, values, std::span(bytes_).subspan(i * unit_bytes_, unit_bytes_));
    }
  });
}

void BlockPool::Fill(Random& random, std::span<std::byte> rows) const {
  for (size_t at = 0; at < rows.size(); at += unit_bytes_) {
    std::memcpy(rows.data() + at, bytes_.data() + random.Below(kPoolPieces) * unit_bytes_,
                unit_bytes_);
  }
}

void EncodeRow(model::TensorType type, std::span<const float> values, std::span<std::byte> row) {
  const size_t good = EncoderOf(type)(values.data(), nullptr, row.data(), values.size());
  if (good == values.size()) return;
  throw Error(ErrorKind::kBadModel, std::to_string(values[good]) + " cannot be written as " +
                                        std::string(model::Info(type).name));
}

Topics::Topics(uint64_t seed, uint64_t width, uint64_t experts, uint64_t picks, double share)
    : seed_(seed), width_(width), experts_(experts), picks_(picks) {
  if (share <= 0 || picks == 0) return;
  count_ = experts / picks;
  boost_ = BoostFor(share, experts, picks);
  Random random(seed, "topics");
  directions_.resize(count_ * width);
  for (float& value : directions_) value = random.Next() >> 63 != 0 ? 1.0F : -1.0F;
  // Topic t has a share of tokens in proportion to 1/(t + 1), as words of a text have.
  double sum = 0;
  for (uint64_t t = 0; t < count_; ++t) {
    sum += 1.0 / static_cast<double>(t + 1);
    bounds_.push_back(sum);
  }
  for (double& bound : bounds_) bound /= sum;
}

uint64_t Topics::TopicOf(uint64_t token) const {
  Random random(seed_, "token " + std::to_string(token));
  const auto found = std::ranges::upper_bound(bounds_, random.Uniform());
  return std::min<uint64_t>(static_cast<uint64_t>(found - bounds_.begin()), count_ - 1);
}

// Of a topic's tokens the best logit is the largest of so many normal numbers; to all of them comes
// the boost, less or more by what embedding and directions have in common by chance. The topic
// stays where its best is better than all others'.
void Topics::SetStay(double share, uint64_t vocabulary) {
  constexpr int kTrials = 100;
  constexpr double kNone = -100;
  std::vector<uint64_t> topic_of(vocabulary);
  std::vector<double> weight(count_, 0);
  for (uint64_t token = 0; token < vocabulary; ++token) {
    topic_of[token] = TopicOf(token);
    weight[topic_of[token]] += 1.0 / static_cast<double>(vocabulary);
  }
  // Of a direction by itself, and with an embedding's two parts, in the units of the boost.
  const double alike = 1 / std::sqrt(static_cast<double>(width_));
  const double by_rest = alike * std::sqrt(1 - kTopicShare * kTopicShare) / kTopicShare;
  struct Trial {
    std::vector<double> best;    // by topic
    std::vector<double> chance;  // by topic of the token, and topic: of the boost
  };
  std::vector<Trial> trials(kTrials);
  Random random(1, "stay");
  // A sum of products has longer tails than Normal, and the largest of many lies there.
  const auto logit = [&] {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += double{random.Normal()};
    return sum / 2;
  };
  for (Trial& trial : trials) {
    trial.best.assign(count_, kNone);
    for (const uint64_t topic : topic_of) {
      trial.best[topic] = std::max(trial.best[topic], logit());
    }
    for (uint64_t own = 0; own < count_; ++own) {
      for (uint64_t topic = 0; topic < count_; ++topic) {
        const double rest = by_rest * double{random.Normal()};
        trial.chance.push_back(own == topic ? 1 + rest : rest + alike * double{random.Normal()});
      }
    }
  }
  const auto stays = [&](const Trial& trial, uint64_t own, double boost) {
    const double* chance = trial.chance.data() + own * count_;
    for (uint64_t topic = 0; topic < count_; ++topic) {
      if (trial.best[topic] + boost * chance[topic] > trial.best[own] + boost * chance[own]) {
        return false;
      }
    }
    return true;
  };
  double low = 0, high = 16;
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const Trial& trial : trials) {
      for (uint64_t own = 0; own < count_; ++own) {
        if (stays(trial, own, middle)) sum += weight[own] / kTrials;
      }
    }
    (sum < share ? low : high) = middle;
  }
  stay_ = high;
}

void Topics::AddToHead(uint64_t token, double gain, std::span<float> row) const {
  const float* direction = directions_.data() + TopicOf(token) * width_;
  const double scale = stay_ * gain / (kTopicShare * static_cast<double>(width_));
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(double{row[i]} + scale * double{direction[i]});
  }
}

void Topics::AddToEmbedding(uint64_t token, std::span<float> row) const {
  if (count_ == 0) return;
  const float* direction = directions_.data() + TopicOf(token) * width_;
  const double rest = std::sqrt(1 - kTopicShare * kTopicShare);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(rest * double{row[i]} + kTopicShare * double{direction[i]});
  }
}

void Topics::AddToRouter(std::string_view name, std::span<float> rows) const {
  if (count_ == 0) return;
  std::vector<uint64_t> order(experts_);
  std::iota(order.begin(), order.end(), uint64_t{0});
  Random random(seed_, "experts " + std::string(name));
  for (uint64_t i = experts_; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  // The direction's dot product with an embedding of its topic is kTopicShare * width.
  const double scale = boost_ / (kTopicShare * static_cast<double>(width_));
  for (uint64_t i = 0; i < count_ * picks_; ++i) {
    const float* direction = directions_.data() + i / picks_ * width_;
    float* row = rows.data() + order[i] * width_;
    for (uint64_t c = 0; c < width_; ++c) {
      row[c] = static_cast<float>(double{row[c]} + scale * double{direction[c]});
    }
  }
}

}  // namespace bloomery::apps

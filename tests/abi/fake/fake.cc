#include "tests/abi/fake/fake.h"

#ifdef FAKE_SCORE
namespace bloomery::test {
class Scored : public Fake {
 public:
  using Fake::Fake;
  static int32_t Probe(const sdk::Model& model) {
    Fake::Probe(model);
    return FAKE_SCORE;
  }
};
}  // namespace bloomery::test
#else
namespace bloomery::test {
using Scored = Fake;
}  // namespace bloomery::test
#endif

BLOOMERY_PLUGIN(bloomery::test::Scored, FAKE_NAME, FAKE_VERSION)

#include "runtime/apps/tools/build_info.h"

#include "bloomery_commit.h"

namespace bloomery::apps {

BuildInfo Build() {
  return {.version = BLOOMERY_VERSION,
          .commit = BLOOMERY_COMMIT,
          .compiler = BLOOMERY_COMPILER,
          .flags = BLOOMERY_FLAGS};
}

}  // namespace bloomery::apps

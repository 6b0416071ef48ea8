#include "runtime/apps/cards_json.h"

#include <gtest/gtest.h>

namespace bloomery::apps {
namespace {

TEST(CardsJson, TellsACardWhoHoldsItAndWhyNobodyIsTold) {
  exec::VideoCard told;
  told.index = 1;
  told.name = "Fake";
  told.sm = "9.0";
  told.total_bytes = 100;
  told.free_bytes = 60;
  told.driver_cuda = "13.0";
  told.holders.list = {{22, "other", 30}, {33, "?", {}}};
  exec::VideoCard untold;
  untold.name = "Other";
  untold.holders.untold = "no library";
  const std::vector<exec::VideoCard> cards = {told, untold};
  EXPECT_EQ(CardsJson(cards).Text(),
            R"([{"index":1,"name":"Fake","sm":"9.0","vram_total":100,"vram_free":60,)"
            R"("driver_cuda":"13.0","holders":[{"pid":22,"name":"other","bytes":30},)"
            R"({"pid":33,"name":"?","bytes":0}]},)"
            R"({"index":0,"name":"Other","sm":"","vram_total":0,"vram_free":0,"driver_cuda":"",)"
            R"("holders":[],"holders_untold":"no library"}])");
  EXPECT_EQ(CardsJson({}).Text(), "[]");
}

}  // namespace
}  // namespace bloomery::apps

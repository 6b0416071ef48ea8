// The web page at `/`: its files, headers, conditions and prefixes, and a folder in its place.
#include "runtime/serve/page.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/temp_dir.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using test::Client;
using test::RequestText;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PageTest : public ServedTest {
 protected:
  Answer Head(const std::string& path, const std::map<std::string, std::string>& headers = {}) {
    Client client(port());
    client.Send(RequestText("HEAD", path, "", headers));
    return client.Read(true);
  }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.File(name)).parent_path());
    std::ofstream(folder_.File(name)) << text;
  }
  // A folder for --path, with a file beside it that must stay unread.
  void ServeFolder() {
    Write("site/index.html", "<h1>mine</h1>");
    Write("site/app.js", "let mine;");
    Write("secret.txt", "secret");
    settings_.page_folder = folder_.File("site");
  }

  test::TempDir folder_;
};

TEST_F(PageTest, PageIsServedWithoutAKeyAndWhileTheModelLoads) {
  settings_.api_keys = {"secret"};
  Listen();
  const Answer answer = Get("/");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(answer.body, StartsWith("<!doctype html>"));
  EXPECT_EQ(Get("/index.html").body, answer.body);
  EXPECT_EQ(Get("/nope.js").status, 401);
}

TEST_F(PageTest, PolicyAllowsNothingInlineAndNothingFromElsewhere) {
  Listen();
  const Answer answer = Get("/");
  const std::string& policy = answer.headers.at("content-security-policy");
  for (const char* part :
       {"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'",
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"}) {
    EXPECT_THAT(policy, HasSubstr(part));
  }
  for (const char* part : {"unsafe", "http", "*", "blob:", "data:"}) {
    EXPECT_THAT(policy, Not(HasSubstr(part)));
  }
  EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(answer.headers.at("referrer-policy"), "no-referrer");
  EXPECT_EQ(answer.headers.at("x-frame-options"), "DENY");
}

TEST_F(PageTest, PageIsAskedForAgainAndNotSentAgain) {
  Listen();
  const Answer first = Get("/");
  EXPECT_EQ(first.headers.at("cache-control"), "no-cache");
  const std::string etag = first.headers.at("etag");
  Client client(port());  // both on one connection: the answer without a body ends where it should
  client.Send(RequestText("GET", "/", "", {{"If-None-Match", etag}}));
  const Answer again = client.Read(true);
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.headers.at("etag"), etag);
  EXPECT_EQ(again.headers.count("content-length"), 0U);
  client.Send(RequestText("GET", "/", "", {{"If-None-Match", "\"other\""}}));
  EXPECT_EQ(client.Read().body, first.body);
}

TEST_F(PageTest, HeadHasTheHeadersOfGetAndNoBody) {
  Listen();
  const Answer got = Get("/");
  const Answer answer = Head("/");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-length"), std::to_string(got.body.size()));
  EXPECT_EQ(answer.headers.at("etag"), got.headers.at("etag"));
  EXPECT_EQ(answer.body, "");
}

TEST_F(PageTest, EveryAssetHasItsTypeAndIsKeptForEverWhereItsPathNamesItsBytes) {
  Listen();
  std::set<std::string_view> paths;
  for (const PageAsset& asset : PageAssets()) {
    EXPECT_TRUE(paths.insert(asset.path).second) << asset.path;
    const Answer answer = Get(std::string(asset.path), {{"Accept-Encoding", "gzip, br"}});
    EXPECT_EQ(answer.status, 200) << asset.path;
    EXPECT_EQ(answer.headers.at("content-type"), ContentTypeOf(asset.path));
    EXPECT_EQ(answer.headers.at("cache-control"),
              asset.hashed_path ? "public, max-age=31536000, immutable" : "no-cache");
    if (!asset.gzip.empty()) {
      EXPECT_EQ(answer.headers.at("content-encoding"), "gzip");
      EXPECT_THAT(answer.body, StartsWith("\x1f\x8b"));
    }
    if (asset.hashed_path) {
      EXPECT_THAT(std::string(asset.path), HasSubstr(std::string(asset.hash)));
    }
    const Answer plain = Get(std::string(asset.path));
    EXPECT_EQ(plain.status, asset.plain.empty() ? 415 : 200) << asset.path;
  }
  EXPECT_TRUE(paths.contains("/index.html"));
}

TEST_F(PageTest, TheTwoFormsOfAFileHaveEtagsOfTheirOwn) {
  Listen();
  for (const PageAsset& asset : PageAssets()) {
    if (asset.plain.empty() || asset.gzip.empty()) continue;
    const Answer plain = Get(std::string(asset.path));
    const Answer gzip = Get(std::string(asset.path), {{"Accept-Encoding", "gzip"}});
    EXPECT_NE(plain.headers.at("etag"), gzip.headers.at("etag"));
    EXPECT_EQ(plain.body, asset.plain);
    EXPECT_EQ(gzip.body, asset.gzip);
  }
}

TEST_F(PageTest, OtherMethodsAndPathsOutsideAre404) {
  Listen();
  for (const char* path :
       {"/../index.html", "/assets/../index.html", "/%2e%2e/index.html", "/assets/", "/assets",
        "//index.html", "/index.html/", "/assets/..%2findex.html", "/index.html%2f"}) {
    EXPECT_EQ(ErrorOf(Get(path), 404, "not_found_error"), "File Not Found") << path;
  }
  EXPECT_EQ(Post("/", "{}").status, 404);
  EXPECT_EQ(Get("/%00").status, 400);
}

TEST_F(PageTest, SwitchedOffItIs404) {
  settings_.page = false;
  Start();
  EXPECT_EQ(ErrorOf(Get("/"), 404, "not_found_error"), "File Not Found");
  EXPECT_EQ(ErrorOf(Get("/index.html"), 404, "not_found_error"), "File Not Found");
  EXPECT_FALSE(GetJson("/props")["ui"].GetBool());
}

TEST_F(PageTest, PrefixIsThePagesToo) {
  settings_.api_prefix = "/model/a";
  Listen();
  EXPECT_EQ(Get("/model/a/").status, 200);
  const Answer bare = Get("/model/a");
  EXPECT_EQ(bare.status, 308);
  EXPECT_EQ(bare.headers.at("location"), "/model/a/");
  EXPECT_EQ(Get("/").status, 404);
}

TEST_F(PageTest, FolderReplacesThePage) {
  ServeFolder();
  Start();
  EXPECT_EQ(Get("/").body, "<h1>mine</h1>");
  const Answer script = Get("/app.js");
  EXPECT_EQ(script.body, "let mine;");
  EXPECT_EQ(script.headers.at("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(Head("/app.js").headers.at("content-length"), "9");
  Client client(port());
  client.Send(RequestText("GET", "/app.js", "", {{"If-None-Match", script.headers.at("etag")}}));
  EXPECT_EQ(client.Read(true).status, 304);
  Write("site/app.js", "let changed;");
  EXPECT_EQ(Get("/app.js", {{"If-None-Match", script.headers.at("etag")}}).body, "let changed;");
  EXPECT_EQ(Get("/health").body, R"({"status":"ok"})");  // routes come first
}

TEST_F(PageTest, NothingOutsideTheFolderIsRead) {
  ServeFolder();
  Write("site/deep/a.txt", "a");
  Write("site2/b.txt", "secret");
  std::filesystem::create_symlink(folder_.File("secret.txt"), folder_.File("site/link.txt"));
  std::filesystem::create_directory_symlink(folder_.path(), folder_.File("site/up"));
  Listen();
  for (const char* path :
       {"/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/deep/../../secret.txt",
        "/link.txt", "/up/secret.txt", "/../site2/b.txt", "/deep", "/deep/", "//etc/passwd",
        "/%2fetc/passwd", "/nope"}) {
    const Answer answer = Get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr("secret"))) << path;
  }
  EXPECT_EQ(Get("/deep/a.txt").body, "a");
}

TEST(PageHeaders, GzipIsTakenAsTheHeaderSays) {
  for (const char* yes : {"gzip", "GZIP", "br, gzip", "gzip;q=0.5", "*", "identity;q=0, *;q=0.1",
                          "br;q=0,gzip ; q=1.0", "x-gzip"}) {
    EXPECT_TRUE(AcceptsGzip(yes)) << yes;
  }
  for (const char* no : {"", "br", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "identity", "gzipped"}) {
    EXPECT_FALSE(AcceptsGzip(no)) << no;
  }
}

TEST(PageHeaders, EtagIsFoundInAListAndWeakOnesCount) {
  EXPECT_TRUE(NamesEtag("\"a\"", "\"a\""));
  EXPECT_TRUE(NamesEtag("\"b\", W/\"a\"", "\"a\""));
  EXPECT_TRUE(NamesEtag("*", "\"a\""));
  EXPECT_FALSE(NamesEtag("\"aa\"", "\"a\""));
  EXPECT_FALSE(NamesEtag("", "\"a\""));
  EXPECT_FALSE(NamesEtag("a", "\"a\""));
}

}  // namespace
}  // namespace bloomery::serve

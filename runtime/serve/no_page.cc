// In place of the page where the build left it out: one small page that says how to get it.
#include <array>

#include "runtime/serve/page.h"

namespace bloomery::serve {
namespace {

constexpr std::string_view kText =
    "<!doctype html>\n"
    "<html lang=\"en\">\n"
    "<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
    "<title>Bloomery</title></head>\n"
    "<body>\n"
    "<h1>Bloomery</h1>\n"
    "<p>The server runs. This build has no chat page: it was made without npm, or with "
    "<code>-DBLOOMERY_PAGE=OFF</code>.</p>\n"
    "<p>To get the page: install Node.js 18 or newer with npm, then configure and build again with "
    "<code>-DBLOOMERY_PAGE=ON</code>, which says what is missing.</p>\n"
    "<p>The API is here all the same: <code>POST /v1/chat/completions</code>, "
    "<code>GET /props</code>, <code>GET /health</code>.</p>\n"
    "</body>\n"
    "</html>\n";

constexpr std::array<PageAsset, 1> kAssets{{{.path = "/index.html",
                                             .content_type = "text/html; charset=utf-8",
                                             .hash = "no-page-1",
                                             .plain = kText,
                                             .gzip = {}}}};

}  // namespace

std::span<const PageAsset> PageAssets() { return kAssets; }

bool PageIsBuilt() { return false; }

}  // namespace bloomery::serve

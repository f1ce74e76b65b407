// The files of the web page, embedded in the program by the build (folder web/).
//
// With the option HEADRACE_UI off the table is empty and `/` answers a short text instead. All data
// is constant and lives as long as the program.
#pragma once

#include <span>
#include <string_view>

namespace headrace {

struct EmbeddedAsset {
  std::string_view path;                // "/", "/assets/app.3f9a1c.js"; "/" is the page itself
  std::string_view mime;                // "text/html; charset=utf-8"
  std::string_view etag;                // quoted, as the header carries it: "\"3f9a1c\""
  std::span<const unsigned char> gzip;  // the file, gzip-compressed
};

std::span<const EmbeddedAsset> embedded_assets();

}  // namespace headrace

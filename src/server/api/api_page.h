// api_page: the table of fields (api_fields.h) as a page: docs/api-fields.md, and what
// `headrace help api` prints.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/api/api_fields.h"

namespace headrace {

struct PlaceRow {
  FieldPlace place;
  std::string_view title;
};

// The bodies, and the objects inside them, in the order of the page.
std::span<const PlaceRow> place_rows();
// Markdown; ends in a newline.
std::string api_page();

}  // namespace headrace

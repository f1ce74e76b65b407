// admin: what the machine's own user may do to a running server. Over a Unix socket alone, of
// which the other end must be this user or root; none of it is on the network's routes.
#pragma once

#include <span>

#include "server/server_state.h"

namespace headrace {

// A row of its own table for each thing that can be done; the scopes of rows mean nothing here.
std::span<const RouteRow> admin_rows();

// As admit() of routes.h, for requests that came over the Unix socket.
Admission admit_admin(HttpRequest& request);

}  // namespace headrace

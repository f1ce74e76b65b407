// ServerOptions: what whoever starts a server chooses. A value.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "server/api_keys.h"
#include "server/http/tls.h"

namespace headrace {

class KvPublisher;    // telemetry/kv_publisher.h
class TraceExporter;  // telemetry/trace_exporter.h

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;               // 0: any free one
  TlsFiles tls;                  // none: plain HTTP
  std::string admin_socket;      // path of a Unix socket (admin.h); empty: none
  std::vector<ApiKey> api_keys;  // at the start; none: no key needed, ever
  // What the numbers of clients are made with, 16 bytes: given, a key's prefixes are found again
  // after a restart. Empty: of this process.
  std::string client_secret;
  std::string adapter_root;                // adapters below it may be loaded; empty: none
  bool adapter_uploads = false;            // clients may send adapters
  std::vector<std::string> allowed_hosts;  // see access.h; "*": any
  std::vector<std::string> cors_origins;   // "https://chat.example"; "*": any
  std::string store_dir;                   // of pulled models; empty: the usual one
  std::string lab_folder;                  // of the laboratory beside it; empty: none
  std::vector<std::string> lab_engines;    // addresses whose figures its page shows
  KvPublisher* kv_events = nullptr;        // for its counters; null, or outlives the server
  TraceExporter* traces = nullptr;         // null: none; or outlives the server
  int num_http_threads = 2;
  int num_workers = 2;  // parse, template and tokenise; large bodies have one more of their own
  size_t max_head_bytes = 32 * 1024;
  size_t max_body_bytes = 32 * 1024 * 1024;
  // All bodies, waiting requests, answers and scores together hold at most this much.
  size_t request_memory_bytes = size_t{1} << 30;
  size_t max_stream_queue_bytes = 256 * 1024;
  size_t response_store_bytes = 64 * 1024 * 1024;  // of kept responses; 0: none are kept
  std::chrono::seconds response_lifetime{3600};    // how long they are kept
  int max_connections = 12'000;
  int max_connections_per_address = 512;  // 0: no limit; this machine itself has none
  std::chrono::milliseconds header_deadline{10'000};
  std::chrono::milliseconds body_deadline{120'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{
      30'000};  // a client that reads nothing for this long is dropped
  std::chrono::milliseconds heartbeat{5'000};  // comment line on a silent stream
  std::chrono::milliseconds stall_limit{
      120'000};  // work but no step for this long: /health says 503
};

}  // namespace headrace

// Connection: one client's socket: reads requests, hands them on, writes answers in order. Inside
// this folder only. Owned by its operations; everything happens on the strand of its socket.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/exchange.h"
#include "server/http/http.h"
#include "server/http/parser.h"
#include "server/http/transport.h"
#include "server/http/workers.h"

namespace headrace {

class Connection;

// What connections share with their server.
struct HttpShared {
  HttpShared(const HttpOptions& given, HttpService does);

  Admission admit(HttpRequest& request) const;
  void handle(HttpRequest&& request, const std::shared_ptr<ResponseWriter>& writer) const;
  // The service's answer to what ends without its handler's.
  HttpResponse failure(const RouteRow* route, int status, std::string_view message) const;
  // The counters' view of an answer that is about to be sent.
  void count(int status) const;
  WorkerPool& workers_for(size_t body_bytes) {
    return body_bytes > kSmallBodyBytes ? large_workers : workers;
  }

  const HttpOptions options;
  const HttpService service;
  HttpCounters own_counters;  // where the service brings none
  HttpCounters& counters;
  // Half the budget is the most that large bodies hold before they are taken up: so small ones
  // always get in beside those that are unfinished.
  ByteBudget uploads;
  std::atomic<int> num_lingering = 0;  // connections that read what nobody wants
  std::atomic<bool> closing = false;
  std::atomic<uint64_t> next_client = 1;
  std::shared_ptr<HandoverPlace> place;  // the I/O threads; constant once the server runs
  std::mutex mutex;                      // guards the maps
  std::condition_variable changed;       // a connection ended
  std::map<Connection*, std::weak_ptr<Connection>> connections;
  std::map<std::string, int> num_of_address;
  WorkerPool workers, large_workers;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = Transport::Socket;

  struct Peer {
    std::string address;     // for the log
    std::string counted_as;  // the key in num_of_address; empty: not counted
  };
  Connection(Transport transport, HttpShared& shared, Peer peer);
  ~Connection();

  void start();
  // Answers 503 with this message, whatever is asked.
  void refuse(std::string message);
  // Any thread.
  void close_if_idle();
  void close_now();

 private:
  using Milliseconds = std::chrono::milliseconds;
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;

  void run(Awaitable<void> work);
  void close();
  void reset();  // as close; what is on its way to the client is lost, and it can tell
  void arm(Milliseconds after);
  void disarm();
  void on_deadline();

  Awaitable<bool> open();
  Awaitable<void> turn_away(std::string message);
  Awaitable<void> serve();
  Awaitable<bool> wait_for_request();
  Awaitable<bool> read_request(RequestParser& parser);
  Awaitable<bool> read_head(RequestParser& parser);
  Awaitable<bool> admit(RequestParser& parser);
  Awaitable<bool> read_body(RequestParser& parser);
  Awaitable<bool> receive(RequestParser* parser);
  boost::system::error_code read_some(RequestParser* parser, size_t limit);
  void feed(RequestParser* parser, std::string_view bytes);
  HttpResponse failure(int status, std::string_view message) const;
  HttpResponse failure(const HttpRefusal& refusal) const;
  HttpResponse dropped() const;
  Awaitable<void> fail(HttpResponse response);
  class Lingering;  // is counted
  Awaitable<void> linger();

  Awaitable<bool> answer(RequestParser& parser);
  void hand_on(RequestParser& parser, const std::shared_ptr<ResponseWriter>& writer);
  void watch();
  void watch_for_reset();
  Awaitable<bool> send_output(bool keep_alive);
  Awaitable<bool> send_whole(HttpResponse response, bool keep_alive);
  Awaitable<bool> send_stream(HttpOutput& output, bool keep_alive);
  Awaitable<bool> wait_for_output();
  void append_chunk(std::string& bytes, std::string_view data) const;
  Awaitable<bool> write(std::string_view first, std::string_view second = {});
  size_t num_acknowledged();

  void begin_record(RequestParser& parser);
  void end_record(bool whole);

  HttpShared& shared_;
  const Peer peer_;
  const uint64_t client_;
  Transport transport_;
  Socket& socket_;  // its socket
  boost::asio::steady_timer deadline_;
  std::string pending_;          // bytes that have arrived and were not used yet
  TimeUs pending_since_us_ = 0;  // when the first of them came in
  size_t received_bytes_ = 0;    // ever
  size_t sent_bytes_ = 0;        // ever, given to the network
  size_t sent_mark_ = 0;         // of these, acknowledged when the write timeout last began
  std::shared_ptr<Exchange> exchange_;
  HttpHeaders extra_headers_;            // of the answer being made
  std::optional<HttpResponse> refusal_;  // at the door, of a request with a short body or none
  const RouteRow* route_ = nullptr;      // of the request being read or answered
  RequestRecord record_;                 // the same
  bool has_record_ = false;
  std::string heartbeat_;  // of the stream that is sent
  TimeUs arrived_us_ = 0;
  size_t record_sent_mark_ = 0;
  bool writing_ = false;      // the deadline is the write timeout
  bool expired_ = false;      // the deadline cancelled the last operation
  bool idle_ = false;         // may be closed without breaking an answer
  bool streamed_ = false;     // the answer comes in parts
  bool half_closed_ = false;  // the client sends no more
  bool probed_ = false;       // since then
  bool chunked_ = true;       // the client speaks HTTP/1.1
  bool head_only_ = false;    // HEAD
};

}  // namespace headrace

// Database: one SQLite file, and statements with bound values.
//
// A statement takes effect whole or not at all, and so does what stands between begin and commit of
// a Transaction; what was committed is on the disk (synchronous=FULL). Other processes may use the
// same file: a statement waits for theirs up to ten seconds. Errors: kExhausted when the disk is
// full, kCorrupt when the file is no database, kIo otherwise, each with the library's reason.
// One thread at a time. Source: sqlite.org/c3ref.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

struct sqlite3;

namespace headrace::lab {

// What a column holds: null, a whole number, a number or a text.
using Value = std::variant<std::monostate, int64_t, double, std::string>;

class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}
  // Null is 0 and the empty text. CHECK: the column has that type.
  int64_t integer(size_t column) const;
  double number(size_t column) const;
  std::string text(size_t column) const;

 private:
  std::vector<Value> values_;
};

class Database {
 public:
  // Makes the file if there is none.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Several statements without values: a schema.
  Status script(const std::string& sql);
  // One statement; returns its rows.
  Result<std::vector<Row>> query(std::string_view sql, std::initializer_list<Value> values = {});
  Status run(std::string_view sql, std::initializer_list<Value> values = {});
  // Of the row that was inserted last.
  int64_t last_id() const;

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  Error error_of(int result) const;

  sqlite3* handle_;
  const std::string path_;
};

// Rolled back when it goes, unless it was committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;  // null: committed
};

}  // namespace headrace::lab

#include "lab/database.h"

#include <sqlite3.h>

#include <cerrno>
#include <utility>

namespace headrace::lab {
namespace {

constexpr int kPatienceMs = 10000;

struct Finalizer {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalizer>;

int bind(sqlite3_stmt* statement, int place, const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return sqlite3_bind_int64(statement, place, *whole);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return sqlite3_bind_double(statement, place, *number);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return sqlite3_bind_text64(statement, place, text->data(), text->size(), SQLITE_TRANSIENT,
                               SQLITE_UTF8);
  }
  return sqlite3_bind_null(statement, place);
}

Value read_column(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return int64_t{sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate{};
    default: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
      return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
    }
  }
}

Row read_row(sqlite3_stmt* statement) {
  std::vector<Value> values;
  const int num_columns = sqlite3_column_count(statement);
  for (int column = 0; column < num_columns; ++column) {
    values.push_back(read_column(statement, column));
  }
  return Row(std::move(values));
}

// Of a full disk SQLite says so only where a write of the database itself failed, and else that
// some input or output did.
int without_space(sqlite3* handle, int result) {
  const bool failed = (result & 0xff) == SQLITE_IOERR || (result & 0xff) == SQLITE_CANTOPEN;
  if (!failed || handle == nullptr) return result;
  const int reason = sqlite3_system_errno(handle);
  return reason == ENOSPC || reason == EDQUOT ? SQLITE_FULL : result;
}

ErrorCode code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_FULL:
      return ErrorCode::kExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

int64_t Row::integer(size_t column) const {
  const Value& value = values_.at(column);
  if (std::holds_alternative<std::monostate>(value)) return 0;
  const auto* whole = std::get_if<int64_t>(&value);
  CHECK(whole != nullptr, "column {} holds no whole number", column);
  return *whole;
}

double Row::number(size_t column) const {
  const Value& value = values_.at(column);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return static_cast<double>(integer(column));
}

std::string Row::text(size_t column) const {
  const Value& value = values_.at(column);
  if (std::holds_alternative<std::monostate>(value)) return {};
  const auto* text = std::get_if<std::string>(&value);
  CHECK(text != nullptr, "column {} holds no text", column);
  return *text;
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  auto database = std::unique_ptr<Database>(new Database(handle, path));
  if (result != SQLITE_OK) return database->error_of(result);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kPatienceMs);
  TRY(database->script("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON"));
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

Error Database::error_of(int result) const {
  const int code = without_space(handle_, result);
  const bool is_as_told = handle_ != nullptr && code == result;
  Error error = make_error(code_of(code), "{}: {}", path_,
                           is_as_told ? sqlite3_errmsg(handle_) : sqlite3_errstr(code));
  if (error.code == ErrorCode::kExhausted) error.hint = "free some space; what was done is kept";
  if (error.code == ErrorCode::kCorrupt) {
    error.hint = "this is no laboratory of headrace, or it is damaged; name another with --lab";
  }
  return error;
}

Status Database::script(const std::string& sql) {
  const int result = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return error_of(result);
  return {};
}

Result<std::vector<Row>> Database::query(std::string_view sql,
                                         std::initializer_list<Value> values) {
  sqlite3_stmt* made = nullptr;
  int result =
      sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &made, nullptr);
  const Statement statement(made);
  if (result != SQLITE_OK) return error_of(result);
  int place = 0;
  for (const Value& value : values) {
    result = bind(made, ++place, value);
    if (result != SQLITE_OK) return error_of(result);
  }
  std::vector<Row> rows;
  while ((result = sqlite3_step(made)) == SQLITE_ROW) rows.push_back(read_row(made));
  if (result != SQLITE_DONE) return error_of(result);
  return rows;
}

Status Database::run(std::string_view sql, std::initializer_list<Value> values) {
  TRY(query(sql, values));
  return {};
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

Result<Transaction> Transaction::begin(Database& database) {
  TRY(database.script("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) static_cast<void>(database_->script("ROLLBACK"));
}

Status Transaction::commit() {
  TRY(database_->script("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace headrace::lab

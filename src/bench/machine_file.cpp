#include "bench/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "backend/cpu/kernels/isa.h"
#include "base/json.h"
#include "base/strings.h"

namespace headrace {
namespace {

namespace json = boost::json;

// IsaBits of "avx2+fma"; names that this program does not know add nothing.
uint32_t isa_bits(std::string_view names) {
  uint32_t bits = 0;
  while (!names.empty()) {
    const size_t end = std::min(names.find('+'), names.size());
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
      if (cpu::isa_names(bit) == names.substr(0, end)) bits |= bit;
    }
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return bits;
}

class MachineReader {
 public:
  MachineReader(std::string_view file, MachineFile* machine) : file_(file), machine_(*machine) {}

  Status line(std::string_view text, size_t number) {
    number_ = number;
    const json::value row = TRY(parse_json(text, fmt::format("{}:{}", file_, number)));
    const std::string kind = TRY(text_of(row, "kind"));
    if (kind == "machine") return describe(row);
    if (kind == "peak") return peak(row);
    if (kind == "read") return read(row);
    if (kind == "op") return op(row);
    if (kind == "sequence")
      return {};  // kernels are measured against it, nothing is forecast of it
    return wrong("kind", fmt::format("'{}' is none of machine, peak, read, sequence and op", kind));
  }

 private:
  Error wrong(std::string_view key, std::string_view reason) const {
    return make_error(ErrorCode::kCorrupt, "{}:{}: \"{}\": {}", file_, number_, key, reason);
  }
  Result<std::string> text_of(const json::value& row, std::string_view key) const {
    const json::value* member = json_member(&row, key);
    if (member == nullptr || !member->is_string()) return wrong(key, "a text is missing");
    return std::string(std::string_view(member->get_string()));
  }
  Result<double> number_of(const json::value& row, std::string_view key) const {
    const json::value* member = json_member(&row, key);
    const double number =
        member != nullptr && member->is_number() ? member->to_number<double>() : 0;
    if (!(number > 0) || number > 1e21) return wrong(key, "a number above 0 is missing");
    return number;
  }
  Status describe(const json::value& row) {
    machine_.processor = TRY(text_of(row, "processor"));
    machine_.isa = isa_bits(TRY(text_of(row, "isa")));
    machine_.memory_bytes = static_cast<size_t>(TRY(number_of(row, "memory_bytes")));
    return {};
  }
  Status peak(const json::value& row) {
    const std::string arithmetic = TRY(text_of(row, "arithmetic"));
    const auto kind = cpu::parse_peak_kind(arithmetic);
    if (!kind) return wrong("arithmetic", fmt::format("'{}' is none that is known", arithmetic));
    machine_.limits.num_threads = static_cast<int>(TRY(number_of(row, "threads")));
    machine_.limits.peaks.push_back(
        {TRY(text_of(row, "name")),
         *kind,
         isa_bits(TRY(text_of(row, "isa"))),
         {TRY(number_of(row, "one_thread_op_s")), TRY(number_of(row, "all_threads_op_s"))}});
    return {};
  }
  Status read(const json::value& row) {
    machine_.limits.reads.push_back(
        {static_cast<size_t>(TRY(number_of(row, "working_set_bytes"))),
         {TRY(number_of(row, "one_thread_byte_s")), TRY(number_of(row, "all_threads_byte_s"))}});
    return {};
  }

  // Ops that this program does not know help it nothing.
  Status op(const json::value& row) {
    const auto rated = parse_rated_op(TRY(text_of(row, "op")));
    if (!rated) return {};
    const json::value* working_set = json_member(&row, "working_set_bytes");
    machine_.rates.add({*rated, json_member(&row, "of") == nullptr ? "" : TRY(text_of(row, "of")),
                        TRY(number_of(row, "size")),
                        working_set == nullptr ? 0 : TRY(number_of(row, "working_set_bytes")),
                        TRY(number_of(row, "unit_s"))});
    return {};
  }

  std::string_view file_;
  MachineFile& machine_;
  size_t number_ = 0;
};

}  // namespace

double MachineFile::bandwidth(double working_set) const {
  const std::vector<cpu::ReadRate>& reads = limits.reads;
  const auto size = [](const cpu::ReadRate& read) { return static_cast<double>(read.num_bytes); };
  if (working_set <= size(reads.front())) return reads.front().bytes.all_threads;
  for (size_t i = 1; i < reads.size(); ++i) {
    if (working_set > size(reads[i])) continue;
    const double low = std::log(size(reads[i - 1])), high = std::log(size(reads[i]));
    const double place = (std::log(working_set) - low) / (high - low);
    const double below = reads[i - 1].bytes.all_threads, above = reads[i].bytes.all_threads;
    return below + place * (above - below);
  }
  return reads.back().bytes.all_threads;
}

Result<MachineFile> parse_machine(std::string_view text, std::string_view file) {
  MachineFile machine;
  MachineReader reader(file, &machine);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (!trim_spaces(line).empty()) TRY(reader.line(line, number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::ranges::sort(machine.limits.reads, {}, &cpu::ReadRate::num_bytes);
  if (machine.processor.empty() || machine.limits.peaks.empty() || machine.limits.reads.empty()) {
    Error error =
        make_error(ErrorCode::kCorrupt, "{} lacks rows of the kinds machine, peak and read", file);
    error.hint = "headrace bench machine --json > FILE makes such a file";
    return error;
  }
  return machine;
}

}  // namespace headrace

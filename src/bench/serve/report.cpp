#include "bench/serve/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/strings.h"
#include "bench/step_terms.h"

namespace headrace::loads {
namespace {

namespace json = boost::json;

json::object estimate_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
}

json::object distribution_json(const Distribution& distribution) {
  json::object object{{"count", distribution.count}, {"mean", estimate_json(distribution.mean)}};
  for (size_t i = 0; i < kQuantiles.size(); ++i) {
    object[fmt::format("p{:.0f}", 100 * kQuantiles[i])] = estimate_json(distribution.quantiles[i]);
  }
  return object;
}

// What was measured over what the limits allow.
double ratio_to_forecast(const StageSummary& stage, Latency latency, double forecast_ms) {
  return stage.latencies[latency].quantiles[0].value / forecast_ms;
}

// The term by which a forecast is wrong, empty where it is not: waiting, which no forecast has,
// where that is more than half of the difference; else what bounds the work.
std::string wrong_term_of(const StageSummary& stage, Latency latency, double forecast_ms,
                          const std::string& bound) {
  const double ratio = ratio_to_forecast(stage, latency, forecast_ms);
  if (near_forecast(ratio)) return {};
  const double waited_ms =
      stage.latencies[kQueue].quantiles[0].value + stage.server_queue_ms.value_or(0);
  const bool waits = latency == kTtft && waited_ms > 0.5 * (ratio - 1) * forecast_ms;
  return ratio > 1 && waits ? "waiting" : bound;
}

json::object forecast_json(const StageSummary& stage) {
  const StageForecast& forecast = *stage.forecast;
  json::object object{{"ttft_ms", forecast.ttft_ms},
                      {"ttft_bound", forecast.ttft_bound},
                      {"ttft_ratio", ratio_to_forecast(stage, kTtft, forecast.ttft_ms)},
                      {"tpot_ms", forecast.tpot_ms},
                      {"tpot_bound", forecast.tpot_bound},
                      {"tpot_ratio", ratio_to_forecast(stage, kTpot, forecast.tpot_ms)}};
  const std::string ttft = wrong_term_of(stage, kTtft, forecast.ttft_ms, forecast.ttft_bound);
  const std::string tpot = wrong_term_of(stage, kTpot, forecast.tpot_ms, forecast.tpot_bound);
  if (!ttft.empty()) object["ttft_wrong_term"] = ttft;
  if (!tpot.empty()) object["tpot_wrong_term"] = tpot;
  return object;
}

std::string forecast_text(const StageSummary& stage) {
  const StageForecast& forecast = *stage.forecast;
  const auto one = [&](std::string_view name, Latency latency, double ms,
                       const std::string& bound) {
    const std::string wrong = wrong_term_of(stage, latency, ms, bound);
    return fmt::format("{} {:.3g} ms by {}, measured {:.2f} x{}", name, ms, bound,
                       ratio_to_forecast(stage, latency, ms),
                       wrong.empty() ? "" : " (wrong: " + wrong + ")");
  };
  return fmt::format("{}: forecast {}; {}", stage.load,
                     one("TTFT", kTtft, forecast.ttft_ms, forecast.ttft_bound),
                     one("per token", kTpot, forecast.tpot_ms, forecast.tpot_bound));
}

json::object stage_json(const StageSummary& stage) {
  json::object object{{"load", stage.load},
                      {"window_s", stage.window_seconds},
                      {"requests", stage.num_requests},
                      {"answered", stage.num_answered},
                      {"refused", stage.num_refused},
                      {"failed", stage.num_failed},
                      {"offered_per_s", stage.offered_per_s},
                      {"requests_per_s", stage.requests_per_s},
                      {"prompt_tokens_per_s", stage.prompt_tokens_per_s},
                      {"output_tokens_per_s", estimate_json(stage.output_tokens_per_s)},
                      {"mean_running", stage.mean_running},
                      {"mean_prompt_tokens", stage.mean_prompt_tokens},
                      {"mean_answer_tokens", stage.mean_answer_tokens},
                      {"growth", stage.growth},
                      {"saturated", stage.saturated},
                      {"own_cpu_share", stage.cpu_share}};
  if (stage.server_queue_ms) object["server_queue_ms_mean"] = *stage.server_queue_ms;
  if (stage.forecast) object["forecast"] = forecast_json(stage);
  if (stage.goodput_per_s) object["goodput_per_s"] = *stage.goodput_per_s;
  if (!stage.first_error.empty()) object["first_error"] = stage.first_error;
  if (!stage.ended_by.empty()) object["ended_by"] = stage.ended_by;
  for (size_t i = 0; i < kNumLatencies; ++i) {
    if (stage.latencies[i].count == 0) continue;
    object[kLatencyNames[i]] = distribution_json(stage.latencies[i]);
  }
  return object;
}

std::string saturation_text(const Saturation& found) {
  if (!found.exceeded && !found.sustained) return {};
  if (!found.exceeded) {
    return fmt::format("It kept up with every rate, up to {:.3g} requests/s.", *found.sustained);
  }
  std::string text;
  if (found.sustained) append_format(text, "It kept up with {:.3g} requests/s; ", *found.sustained);
  append_format(text, "{}t {:.3g} answers come later and later: about {:.3g} are served.",
                found.sustained ? "a" : "A", *found.exceeded, *found.estimate);
  return text;
}

// Remarks on a stage that a reader must not miss.
std::vector<std::string> warnings_of(const StageSummary& stage) {
  std::vector<std::string> warnings;
  if (stage.cpu_share > kMostCpuShare) {
    warnings.push_back(
        fmt::format("{}: this program itself took {:.0f} % of a core: its own work may be part of "
                    "the latencies",
                    stage.load, 100 * stage.cpu_share));
  }
  if (stage.num_failed > 0) {
    warnings.push_back(fmt::format("{}: {} of {} requests failed: {}", stage.load, stage.num_failed,
                                   stage.num_requests, stage.first_error));
  }
  if (!stage.ended_by.empty()) {
    warnings.push_back(fmt::format("{}: ended early: {}", stage.load, stage.ended_by));
  }
  if (stage.num_answered == 0) {
    warnings.push_back(fmt::format("{}: no request was answered inside the window", stage.load));
  }
  return warnings;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

constexpr double kWide = 640, kHigh = 260, kEdge = 48;

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// Lines over a common range that begins at 0, with its ends written at the axes.
std::string plot(std::string_view title, std::string_view x_name, std::span<const Line> lines) {
  constexpr std::string_view kColours[] = {"#2563eb", "#d97706", "#059669", "#db2777",
                                           "#7c3aed", "#475569", "#0891b2", "#65a30d"};
  double x_most = 0, y_most = 0;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points) {
      x_most = std::max(x_most, x);
      y_most = std::max(y_most, y);
    }
  }
  if (x_most <= 0) x_most = 1;
  if (y_most <= 0) y_most = 1;
  std::string svg = fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\"><path d=\"M{} 12V{}H{}\" class=\"axis\"/>",
      escaped(title), kWide, kHigh, escaped(title), kEdge, kHigh - kEdge, kWide - 12);
  append_format(svg, "<text x=\"4\" y=\"20\">{:.4g}</text>", y_most);
  append_format(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.4g}</text>", kWide - 12,
                kHigh - kEdge + 18, x_most);
  append_format(svg, "<text x=\"{}\" y=\"{}\">0</text><text x=\"{}\" y=\"{}\">{}</text>",
                kEdge - 12, kHigh - kEdge + 18, kWide / 3, kHigh - kEdge + 18, escaped(x_name));
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    std::string path;
    for (const auto& [x, y] : lines[i].points) {
      append_format(path, "{}{:.1f} {:.1f}", path.empty() ? "M" : "L",
                    kEdge + x / x_most * (kWide - kEdge - 12),
                    kHigh - kEdge - y / y_most * (kHigh - kEdge - 12));
    }
    append_format(svg, "<path d=\"{}\" stroke=\"{}\" class=\"line\"/>", path, colour);
    const size_t row = i / 6, place = i % 6;
    append_format(svg, "<text x=\"{}\" y=\"{}\" style=\"fill:{}\">{}</text>",
                  kEdge + 8 + 96 * static_cast<double>(place),
                  kHigh - 14 + 12 * static_cast<double>(row), colour, escaped(lines[i].name));
  }
  return svg + "</svg></figure>";
}

// The share of values up to each: at most 200 points of a curve.
Line cumulative(const StageSummary& stage, Latency latency) {
  const std::vector<double>& values = stage.latencies[latency].sorted;
  Line line{stage.load, {}};
  const size_t stride = values.size() / 200 + 1;
  for (size_t i = 0; i < values.size(); i += stride) {
    line.points.emplace_back(values[i],
                             static_cast<double>(i + 1) / static_cast<double>(values.size()));
  }
  return line;
}

std::string latency_curves(std::string_view title, std::span<const StageSummary> stages,
                           Latency latency) {
  std::vector<Line> lines;
  for (const StageSummary& stage : stages) lines.push_back(cumulative(stage, latency));
  return plot(title, "ms", lines);
}

// Over the offered rate; only where a sweep has at least two.
std::string rate_curves(std::span<const StageSummary> stages) {
  Line median{"p50", {}}, late{"p95", {}}, served{"served", {}}, good{"within limits", {}};
  for (const StageSummary& stage : stages) {
    if (!stage.shape.is_open()) continue;
    const double rate = stage.offered_per_s;
    median.points.emplace_back(rate, stage.latencies[kTtft].quantiles[0].value);
    late.points.emplace_back(rate, stage.latencies[kTtft].quantiles[2].value);
    served.points.emplace_back(rate, stage.requests_per_s);
    if (stage.goodput_per_s) good.points.emplace_back(rate, *stage.goodput_per_s);
  }
  if (median.points.size() < 2) return {};
  std::vector<Line> rates = {served};
  if (!good.points.empty()) rates.push_back(good);
  return plot("Time to first token (ms) by rate", "requests/s offered", std::array{median, late}) +
         plot("Requests served per second by rate", "requests/s offered", rates);
}

std::string cell(const Estimate& estimate) {
  return fmt::format("<td>{:.4g}<small> {:.4g} to {:.4g}</small></td>", estimate.value,
                     estimate.low, estimate.high);
}

std::string stage_row(const StageSummary& stage) {
  std::string row =
      fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{:.4g}</td>", escaped(stage.load),
                  stage.num_answered, stage.num_refused + stage.num_failed, stage.requests_per_s);
  row += cell(stage.output_tokens_per_s);
  for (const Latency latency : {kTtft, kTpot, kE2e}) {
    for (const size_t at : {0, 2, 3}) row += cell(stage.latencies[latency].quantiles[at]);
  }
  row += stage.goodput_per_s ? fmt::format("<td>{:.4g}</td>", *stage.goodput_per_s) : "<td></td>";
  return row + fmt::format("<td>{:.0f} %</td></tr>\n", 100 * stage.cpu_share);
}

constexpr std::string_view kStyle =
    "<style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;"
    "margin:2em auto;padding:0 1em}table{border-collapse:collapse;font-variant-numeric:"
    "tabular-nums}.wide{overflow-x:auto}th,td{padding:.3em .6em;text-align:right;border-bottom:"
    "1px solid #8886;white-space:nowrap}small{opacity:.6}figure{display:inline-block;width:"
    "min(560px,100%);margin:1em 0}svg{width:100%;font-size:12px}svg text{fill:currentColor}"
    ".axis{stroke:currentColor;fill:none}.line{fill:none;stroke-width:2}</style>";

constexpr std::string_view kColumns =
    "<tr><th>load</th><th>answered</th><th>not</th><th>requests/s</th><th>output tokens/s</th>"
    "<th>TTFT p50</th><th>p95</th><th>p99</th><th>per token p50</th><th>p95</th><th>p99</th>"
    "<th>end to end p50</th><th>p95</th><th>p99</th><th>goodput/s</th><th>own CPU</th></tr>\n";

}  // namespace

json::object report_json(const ReportHead& head, std::span<const StageSummary> stages) {
  json::array rows;
  for (const StageSummary& stage : stages) rows.push_back(stage_json(stage));
  json::object report{{"kind", "serve"},
                      {"url", head.url},
                      {"model", head.model},
                      {"prompt_tokens", head.prompts},
                      {"answer_tokens", head.answers},
                      {"profile", head.profile},
                      {"slo", head.slo},
                      {"stages", std::move(rows)}};
  const Saturation found = find_saturation(stages);
  json::object saturation;
  if (found.sustained) saturation["sustained_per_s"] = *found.sustained;
  if (found.exceeded) saturation["exceeded_per_s"] = *found.exceeded;
  if (found.estimate) saturation["served_per_s"] = *found.estimate;
  if (!saturation.empty()) report["saturation"] = std::move(saturation);
  return report;
}

std::string report_text(std::span<const StageSummary> stages) {
  std::string text = fmt::format("{:<16} {:>8} {:>6} {:>8} {:>9} {:>23} {:>23} {:>10}\n", "load",
                                 "answered", "not", "req/s", "tokens/s", "TTFT p50/p95/p99 ms",
                                 "per token p50/p95/p99", "goodput/s");
  for (const StageSummary& stage : stages) {
    const auto three = [&](Latency latency) {
      const auto& parts = stage.latencies[latency].quantiles;
      return fmt::format("{:.4g}/{:.4g}/{:.4g}", parts[0].value, parts[2].value, parts[3].value);
    };
    append_format(text, "{:<16} {:>8} {:>6} {:>8.3g} {:>9.4g} {:>23} {:>23} {:>10}\n", stage.load,
                  stage.num_answered, stage.num_refused + stage.num_failed, stage.requests_per_s,
                  stage.output_tokens_per_s.value, three(kTtft), three(kTpot),
                  stage.goodput_per_s ? fmt::format("{:.3g}", *stage.goodput_per_s) : "-");
  }
  for (const StageSummary& stage : stages) {
    if (stage.forecast) text += forecast_text(stage) + "\n";
    for (const std::string& warning : warnings_of(stage)) text += warning + "\n";
  }
  const std::string saturation = saturation_text(find_saturation(stages));
  return saturation.empty() ? text : text + saturation + "\n";
}

std::string report_html(const ReportHead& head, std::span<const StageSummary> stages) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<meta name=\"viewport\" content=\"width=device-width\">{1}</head><body>\n"
      "<h1>{0} under load</h1>\n<p>{2}; prompts of {3} tokens, answers of {4}, profile {5}{6}. "
      "Times in milliseconds, counted from when a request was due, with 95 % intervals.</p>\n",
      escaped(head.model), kStyle, escaped(head.url), escaped(head.prompts), escaped(head.answers),
      escaped(head.profile), head.slo.empty() ? "" : "; limits " + escaped(head.slo));
  html += "<div class=\"wide\"><table>";
  html += kColumns;
  for (const StageSummary& stage : stages) html += stage_row(stage);
  html += "</table></div>\n";
  for (const StageSummary& stage : stages) {
    if (stage.forecast) html += "<p>" + escaped(forecast_text(stage)) + "</p>";
    for (const std::string& warning : warnings_of(stage)) html += "<p>" + escaped(warning) + "</p>";
  }
  html += "<p>" + escaped(saturation_text(find_saturation(stages))) + "</p>\n";
  html += rate_curves(stages);
  html += latency_curves("Time to first token: share of requests", stages, kTtft);
  html += latency_curves("Mean time per token: share of requests", stages, kTpot);
  html += latency_curves("End to end: share of requests", stages, kE2e);
  return html + "</body></html>\n";
}

}  // namespace headrace::loads

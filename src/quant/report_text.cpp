// Formatting of numbers, sizes and shapes, and the list of leading facts.
#include "quant/report_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace qinfer::quant {
namespace {

using observe::Report;

bool IsNumber(const Report* node) {
  return node != nullptr &&
         (node->kind() == Report::Kind::kInt || node->kind() == Report::Kind::kNumber);
}

void Add(const char* name, std::string value, std::vector<ReportFact>* facts) {
  if (!value.empty()) facts->push_back({name, std::move(value)});
}

std::string Percent(const Report& report, std::string_view path, std::string_view format) {
  const Report* node = report.Find(path);
  return IsNumber(node) ? FormatNumber(format, 100.0 * node->AsNumber()) + " %" : std::string();
}

std::string CalibrationText(const Report& report) {
  std::string source = ReportString(report, "calibration.source");
  if (source.empty() || source == "none") return source;
  return source + ", " + ReportNumber(report, "calibration.samples", "%.0f") + " samples, " +
         ReportNumber(report, "calibration.tokens", "%.0f") + " tokens";
}

std::string CoverageText(const Report& report) {
  const Report* all = report.Find("calibration.expert_coverage.experts");
  const Report* without = report.Find("calibration.expert_coverage.without_tokens");
  if (!IsNumber(all) || !IsNumber(without)) return {};
  return FormatNumber("%.0f", all->AsNumber() - without->AsNumber()) + " of " +
         FormatNumber("%.0f", all->AsNumber()) + ", with " +
         ReportNumber(report, "calibration.expert_coverage.least_tokens", "%.0f") + " to " +
         ReportNumber(report, "calibration.expert_coverage.most_tokens", "%.0f") + " tokens each";
}

std::string LeftOutText(const Report& report) {
  std::string tensors = ReportNumber(report, "skipped.tensors", "%.0f");
  if (tensors.empty()) return tensors;
  return tensors + " tensors, " + ReportBytes(report, "skipped.bytes") + ": " +
         ReportString(report, "skipped.why");
}

std::string WithReference(const Report& report, std::string_view path, std::string_view reference) {
  std::string value = ReportNumber(report, path, "%.4f");
  if (value.empty()) return value;
  return value + " (original " + ReportNumber(report, reference, "%.4f") + ", " +
         Percent(report, "evaluation.perplexity_increase", "%+.3f") + ")";
}

}  // namespace

std::string FormatNumber(std::string_view format, double value) {
  // By to_chars, since printf takes its decimal point from the host's locale.
  const char kind = format.empty() ? 'g' : format.back();
  const size_t dot = format.find('.');
  int precision = 6;
  if (dot != std::string_view::npos) {
    std::from_chars(format.data() + dot + 1, format.data() + format.size(), precision);
  }
  char text[400];  // the largest double has 309 digits before the point
  const std::to_chars_result result = std::to_chars(text, text + sizeof(text), value,
                                                    kind == 'f'   ? std::chars_format::fixed
                                                    : kind == 'e' ? std::chars_format::scientific
                                                                  : std::chars_format::general,
                                                    std::min(precision, 20));
  if (result.ec != std::errc()) return {};
  const bool sign = format.find('+') != std::string_view::npos && !std::signbit(value);
  std::string out;
  if (sign) out.push_back('+');
  out.append(text, result.ptr);
  return out;
}

std::string ReportNumber(const Report& node, std::string_view path, std::string_view format) {
  const Report* found = node.Find(path);
  return IsNumber(found) ? FormatNumber(format, found->AsNumber()) : std::string();
}

std::string ReportString(const Report& node, std::string_view path) {
  const Report* found = node.Find(path);
  return found != nullptr && found->kind() == Report::Kind::kString ? found->AsString()
                                                                    : std::string();
}

std::string ReportBytes(const Report& node, std::string_view path) {
  const Report* found = node.Find(path);
  if (!IsNumber(found)) return {};
  const double bytes = found->AsNumber();
  if (bytes < 1e3) return FormatNumber("%.0f", bytes) + " B";
  if (bytes < 1e6) return FormatNumber("%.1f", bytes * 1e-3) + " kB";
  if (bytes < 1e9) return FormatNumber("%.2f", bytes * 1e-6) + " MB";
  return FormatNumber("%.2f", bytes * 1e-9) + " GB";
}

std::string ReportShape(const Report& tensor) {
  const Report* shape = tensor.Find("shape");
  std::string text;
  for (size_t i = 0; shape != nullptr && i < shape->size(); ++i) {
    if (i != 0) text += " x ";
    text += FormatNumber("%.0f", shape->at(i).AsNumber());
  }
  return text;
}

std::vector<ReportFact> ReportFacts(const Report& report) {
  std::vector<ReportFact> facts;
  Add("source", ReportString(report, "source"), &facts);
  Add("architecture", ReportString(report, "architecture"), &facts);
  Add("parameters", ReportNumber(report, "parameters", "%.0f"), &facts);
  Add("linear weights", ReportString(report, "recipe.linear"), &facts);
  Add("method", ReportString(report, "recipe.method"), &facts);
  Add("calibration", CalibrationText(report), &facts);
  Add("experts reached", CoverageText(report), &facts);
  Add("file", ReportBytes(report, "file_bytes"), &facts);
  Add("source tensors", ReportBytes(report, "source_tensor_bytes"), &facts);
  Add("left out", LeftOutText(report), &facts);
  Add("bits per weight", ReportNumber(report, "bits_per_weight", "%.3f"), &facts);
  Add("in layers", ReportNumber(report, "layer_bits_per_weight", "%.3f"), &facts);
  Add("perplexity",
      WithReference(report, "evaluation.perplexity", "evaluation.reference_perplexity"), &facts);
  Add("KL mean", ReportNumber(report, "evaluation.kl_mean", "%.6f"), &facts);
  Add("KL median", ReportNumber(report, "evaluation.kl_median", "%.6f"), &facts);
  Add("KL 99.9 %", ReportNumber(report, "evaluation.kl_p999", "%.6f"), &facts);
  Add("same top token", Percent(report, "evaluation.top1", "%.2f"), &facts);
  Add("scored tokens", ReportNumber(report, "evaluation.tokens", "%.0f"), &facts);
  Add("evaluation", ReportString(report, "evaluation_skipped"), &facts);
  Add("memory plan", ReportBytes(report, "memory.plan_total_bytes"), &facts);
  Add("layers taken over", ReportNumber(report, "resume.layers_reused", "%.0f"), &facts);
  return facts;
}

}  // namespace qinfer::quant

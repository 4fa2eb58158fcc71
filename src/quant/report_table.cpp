// The report of a quantization or conversion as aligned text for a terminal.
#include <algorithm>
#include <string>
#include <vector>

#include "quant/quantize.h"
#include "quant/report_text.h"

namespace qinfer::quant {
namespace {

using observe::Report;

struct Column {
  std::string title;
  bool right = false;
};

// Display width of UTF-8 text, one column per code point: names in reports are mostly ASCII.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

void AppendTable(const std::vector<Column>& columns,
                 const std::vector<std::vector<std::string>>& rows, std::string* out) {
  std::vector<size_t> widths, shown;
  for (size_t c = 0; c < columns.size(); ++c) {
    // What no row says anything about (errors of a conversion) is left out.
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return !row[c].empty(); })) {
      shown.push_back(c);
    }
    size_t width = Width(columns[c].title);
    for (const auto& row : rows) width = std::max(width, Width(row[c]));
    widths.push_back(width);
  }
  const auto line = [&](const auto& cell) {
    std::string text;
    for (size_t c : shown) {
      const std::string value = cell(c);
      const std::string padding(widths[c] - Width(value), ' ');
      if (!text.empty()) text += "  ";
      text += columns[c].right ? padding + value : value + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    *out += text + "\n";
  };
  line([&](size_t c) { return columns[c].title; });
  line([&](size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows) line([&](size_t c) { return row[c]; });
}

void AppendFacts(const Report& report, std::string* out) {
  std::vector<std::vector<std::string>> rows;
  for (const ReportFact& fact : ReportFacts(report)) rows.push_back({fact.name, fact.value});
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row[0].size());
  for (const auto& row : rows) {
    *out += row[0] + std::string(width - row[0].size() + 2, ' ') + row[1] + "\n";
  }
}

}  // namespace

std::string ReportTable(const observe::Report& report) {
  std::string out;
  AppendFacts(report, &out);
  const Report* layers = report.Find("layers");
  if (layers != nullptr && layers->size() > 0) {
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < layers->size(); ++i) {
      const Report& layer = layers->at(i);
      rows.push_back({ReportNumber(layer, "layer", "%.0f"), ReportBytes(layer, "bytes"),
                      ReportNumber(layer, "bits_per_weight", "%.2f"),
                      ReportNumber(layer, "relative_mse", "%.3e"),
                      ReportNumber(layer, "hidden.relative_mse", "%.3e"),
                      ReportNumber(layer, "hidden.cosine", "%.6f"),
                      ReportNumber(layer, "hidden.max_abs", "%.4g")});
    }
    out += "\n";
    AppendTable({{"layer", true},
                 {"size", true},
                 {"bits", true},
                 {"weight error", true},
                 {"drift", true},
                 {"drift cosine", true},
                 {"drift max", true}},
                rows, &out);
  }
  const Report* tensors = report.Find("tensors");
  if (tensors != nullptr && tensors->size() > 0) {
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < tensors->size(); ++i) {
      const Report& tensor = tensors->at(i);
      rows.push_back({ReportString(tensor, "name"), ReportString(tensor, "role"),
                      ReportShape(tensor), ReportString(tensor, "source_type"),
                      ReportString(tensor, "format"), ReportString(tensor, "import"),
                      ReportBytes(tensor, "bytes"), ReportNumber(tensor, "bits_per_weight", "%.2f"),
                      ReportNumber(tensor, "relative_mse", "%.3e"),
                      ReportNumber(tensor, "weighted_relative_mse", "%.3e"),
                      ReportNumber(tensor, "max_abs", "%.4g"),
                      ReportNumber(tensor, "cosine", "%.6f")});
    }
    out += "\n";
    AppendTable({{"tensor"},
                 {"role"},
                 {"shape"},
                 {"from"},
                 {"format"},
                 {"import"},
                 {"size", true},
                 {"bits", true},
                 {"error", true},
                 {"weighted", true},
                 {"max", true},
                 {"cosine", true}},
                rows, &out);
  }
  return out;
}

}  // namespace qinfer::quant

// The report as one HTML page that needs nothing else: style and plots inline, light and dark by
// the reader's preference, every text escaped.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "quant/quantize.h"
#include "quant/report_text.h"

namespace qinfer::quant {
namespace {

using observe::Report;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6570;--line:#d8dee4;--back:#fff;
--mark:#2463b4;--other:#b4551f}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--line:#3a424a;--back:#15181c;
--mark:#7fb2f0;--other:#f0a277}}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--back);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}
.wide{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:1.5rem}
figure{margin:0;flex:1 1 22rem}figcaption{color:var(--soft)}svg{width:100%;height:auto}
.axis{stroke:var(--line)}.curve{fill:none;stroke:var(--mark);stroke-width:2}
.dot{fill:var(--mark)}.bar{fill:var(--other)}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}
)";

std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters have no place in HTML.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string Fixed(double value, std::string_view format = "%.1f") {
  return FormatNumber(format, value);
}

// Values of one path over the layers; empty where any layer lacks it.
std::vector<double> Series(const Report& layers, std::string_view path) {
  std::vector<double> values;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Report* node = layers.at(i).Find(path);
    if (node == nullptr) return {};
    const double value = node->AsNumber();
    values.push_back(std::isfinite(value) ? value : 0.0);
  }
  return values;
}

// A curve, or bars, over the layers; from zero up to the largest value.
std::string Plot(const std::vector<double>& values, const std::string& title, bool bars) {
  if (values.empty()) return {};
  constexpr double kWidth = 420, kHeight = 190, kLeft = 62, kBottom = 24, kTop = 10, kRight = 10;
  const double top = std::max(*std::max_element(values.begin(), values.end()), 1e-300);
  const double inner = kWidth - kLeft - kRight, tall = kHeight - kTop - kBottom;
  const double step = inner / static_cast<double>(values.size());
  const auto x = [&](size_t i) { return kLeft + step * (static_cast<double>(i) + 0.5); };
  const auto y = [&](double v) { return kTop + tall * (1.0 - std::max(v, 0.0) / top); };
  std::string svg =
      "<figure><svg viewBox=\"0 0 420 190\" role=\"img\" aria-label=\"" + Escape(title) + "\">";
  for (double share : {0.0, 0.5, 1.0}) {
    const std::string at = Fixed(y(top * share));
    svg += StrCat("<line class=\"axis\" x1=\"62\" x2=\"410\" y1=\"", at, "\" y2=\"", at,
                  "\"/><text x=\"56\" y=\"", Fixed(y(top * share) + 4), "\" text-anchor=\"end\">",
                  Fixed(top * share, "%.3g"), "</text>");
  }
  if (bars) {
    for (size_t i = 0; i < values.size(); ++i) {
      svg += "<rect class=\"bar\" x=\"" + Fixed(x(i) - step * 0.4) + "\" width=\"" +
             Fixed(step * 0.8) + "\" y=\"" + Fixed(y(values[i])) + "\" height=\"" +
             Fixed(kTop + tall - y(values[i])) + "\"><title>layer " + Fixed(double(i), "%.0f") +
             ": " + Fixed(values[i], "%.4g") + "</title></rect>";
    }
  } else {
    svg += "<polyline class=\"curve\" points=\"";
    for (size_t i = 0; i < values.size(); ++i) svg += Fixed(x(i)) + "," + Fixed(y(values[i])) + " ";
    svg += "\"/>";
    for (size_t i = 0; i < values.size(); ++i) {
      svg += "<circle class=\"dot\" cx=\"" + Fixed(x(i)) + "\" cy=\"" + Fixed(y(values[i])) +
             "\" r=\"3\"><title>layer " + Fixed(double(i), "%.0f") + ": " +
             Fixed(values[i], "%.4g") + "</title></circle>";
    }
  }
  const size_t every = std::max<size_t>(1, (values.size() + 9) / 10);
  for (size_t i = 0; i < values.size(); i += every) {
    svg += "<text x=\"" + Fixed(x(i)) + "\" y=\"184\" text-anchor=\"middle\">" +
           Fixed(double(i), "%.0f") + "</text>";
  }
  return svg + "</svg><figcaption>" + Escape(title) + "</figcaption></figure>";
}

struct Cell {
  std::string text;
  bool number = false;
};

void AppendRow(const char* tag, const std::vector<Cell>& cells, std::string* out) {
  *out += "<tr>";
  for (const Cell& cell : cells) {
    *out += std::string("<") + tag + (cell.number ? " class=\"n\">" : ">") + Escape(cell.text) +
            "</" + tag + ">";
  }
  *out += "</tr>\n";
}

void AppendPlots(const Report& layers, std::string* out) {
  *out += "<h2>Layers</h2>\n<div class=\"plots\">\n";
  *out +=
      Plot(Series(layers, "relative_mse"), "Error of the weights (relative MSE) per layer", true);
  *out += Plot(Series(layers, "hidden.relative_mse"),
               "Drift of the hidden state (relative MSE) after each layer", false);
  *out += Plot(Series(layers, "bits_per_weight"), "Bits per weight per layer", true);
  *out += "</div>\n";
}

void AppendTensors(const Report& tensors, std::string* out) {
  *out += "<h2>Tensors</h2>\n<div class=\"wide\"><table>\n";
  AppendRow("th",
            {{"tensor"},
             {"role"},
             {"shape"},
             {"from"},
             {"format"},
             {"import"},
             {"size", true},
             {"bits", true},
             {"relative MSE", true},
             {"weighted", true},
             {"max", true},
             {"cosine", true}},
            out);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Report& t = tensors.at(i);
    AppendRow("td",
              {{ReportString(t, "name")},
               {ReportString(t, "role")},
               {ReportShape(t)},
               {ReportString(t, "source_type")},
               {ReportString(t, "format")},
               {ReportString(t, "import")},
               {ReportBytes(t, "bytes"), true},
               {ReportNumber(t, "bits_per_weight", "%.2f"), true},
               {ReportNumber(t, "relative_mse", "%.3e"), true},
               {ReportNumber(t, "weighted_relative_mse", "%.3e"), true},
               {ReportNumber(t, "max_abs", "%.4g"), true},
               {ReportNumber(t, "cosine", "%.6f"), true}},
              out);
  }
  *out += "</table></div>\n";
}

}  // namespace

std::string ReportHtml(const observe::Report& report) {
  const bool convert = ReportString(report, "kind") == "convert";
  const std::string title = convert ? "Conversion report" : "Quantization report";
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
      title + "</title><style>" + kStyle + "</style></head><body>\n<h1>" + title +
      "</h1>\n<table>\n";
  for (const ReportFact& fact : ReportFacts(report)) {
    AppendRow("td", {{fact.name}, {fact.value}}, &out);
  }
  out += "</table>\n";
  const Report* layers = report.Find("layers");
  if (layers != nullptr && layers->size() > 0) AppendPlots(*layers, &out);
  const Report* tensors = report.Find("tensors");
  if (tensors != nullptr && tensors->size() > 0) AppendTensors(*tensors, &out);
  return out + "</body></html>\n";
}

}  // namespace qinfer::quant

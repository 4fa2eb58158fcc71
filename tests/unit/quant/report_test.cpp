// Rendering of reports: alignment, escaping, self-containedness.
#include <gtest/gtest.h>

#include "quant/quantize.h"

namespace qinfer::quant {
namespace {

observe::Report Sample() {
  observe::Report report;
  report["kind"] = "quantize";
  report["source"] = "<script>alert('x')</script> & \"co\"";
  report["file_bytes"] = uint64_t{3} << 20;
  report["evaluation"]["perplexity"] = 18.05;
  report["evaluation"]["reference_perplexity"] = 17.97;
  report["evaluation"]["perplexity_increase"] = 0.00445;
  report["evaluation"]["kl_mean"] = 0.0065;
  for (int i = 0; i < 3; ++i) {
    observe::Report& layer = report["layers"].Append();
    layer["layer"] = i;
    layer["bytes"] = 1000 * (i + 1);
    layer["bits_per_weight"] = 4.5;
    layer["relative_mse"] = 0.005 * (i + 1);
    layer["hidden"]["relative_mse"] = 0.001 * (i + 1);
    layer["hidden"]["cosine"] = 0.999;
  }
  observe::Report& tensor = report["tensors"].Append();
  tensor["name"] = "a<b>.weight";
  tensor["role"] = "q";
  tensor["shape"].Append() = 576;
  tensor["shape"].Append() = 1536;
  tensor["format"] = "int4-g32-f16";
  tensor["bytes"] = 497664;
  tensor["relative_mse"] = 0.005;
  return report;
}

TEST(ReportTable, AlignsColumns) {
  const std::string table = ReportTable(Sample());
  EXPECT_NE(table.find("18.0500 (original 17.9700, +0.445 %)"), std::string::npos) << table;
  EXPECT_NE(table.find("576 x 1536"), std::string::npos);
  EXPECT_EQ(table.find("experts reached"), std::string::npos);
  EXPECT_NE(table.find("497.7 kB"), std::string::npos);
  // The rule under the titles is as long as the longest line of its table.
  const size_t title = table.find("\nlayer");
  ASSERT_NE(title, std::string::npos);
  const size_t rule = table.find('\n', title + 1) + 1;
  const std::string line = table.substr(rule, table.find('\n', rule) - rule);
  EXPECT_EQ(line.find_first_not_of("- "), std::string::npos) << line;
}

TEST(ReportTable, SaysHowManyExpertsACalibrationReached) {
  observe::Report report = Sample();
  observe::Report& coverage = report["calibration"]["expert_coverage"];
  coverage["experts"] = 256;
  coverage["without_tokens"] = 2;
  coverage["least_tokens"] = 0;
  coverage["most_tokens"] = 97;
  for (const std::string& text : {ReportTable(report), ReportHtml(report)}) {
    EXPECT_NE(text.find("experts reached"), std::string::npos) << text;
    EXPECT_NE(text.find("254 of 256, with 0 to 97 tokens each"), std::string::npos) << text;
  }
}

TEST(ReportTable, ToleratesAnEmptyReport) { EXPECT_EQ(ReportTable(observe::Report()), ""); }

TEST(ReportHtml, EscapesAndNeedsNothingElse) {
  const std::string html = ReportHtml(Sample());
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("a<b>"), std::string::npos);
  EXPECT_NE(html.find("a&lt;b&gt;.weight"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<link"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  size_t plots = 0;
  for (size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1)) {
    ++plots;
  }
  EXPECT_EQ(plots, 3u);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
}

}  // namespace
}  // namespace qinfer::quant

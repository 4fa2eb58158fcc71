// Values of a report as text, shared by its renderings: absent fields become an empty string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "observe/report.h"

namespace qinfer::quant {

struct ReportFact {
  std::string name, value;
};
// What one wants to know first, in order; facts that the report does not have are left out.
std::vector<ReportFact> ReportFacts(const observe::Report& report);

// `format` is "%.3f", "%.3e" or "%.3g", with a '+' before the point where a sign is wanted. The
// same in every locale.
std::string FormatNumber(std::string_view format, double value);
std::string ReportNumber(const observe::Report& node, std::string_view path,
                         std::string_view format);
std::string ReportString(const observe::Report& node, std::string_view path);
std::string ReportBytes(const observe::Report& node, std::string_view path);  // "1.50 MB"
std::string ReportShape(const observe::Report& tensor);                       // "576 x 1536"

}  // namespace qinfer::quant

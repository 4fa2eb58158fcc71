// strftime of a UTC time in the C locale, for strftime_now.
#include "tokenizer/jinja_library.h"

namespace qinfer::tokenizer::jinja {
namespace {

constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

struct Time {
  int64_t year;
  int month, day;  // from 1
  int hour, minute, second;
  int weekday;   // Sunday is 0
  int year_day;  // from 1
};

bool IsLeap(int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

Time Decompose(int64_t seconds) {
  Time t{};
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  t.hour = static_cast<int>(rest / 3600);
  t.minute = static_cast<int>(rest / 60 % 60);
  t.second = static_cast<int>(rest % 60);
  t.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  // Days from 1 March of year 0 in eras of 400 years.
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;
  t.day = static_cast<int>(day_of_year - (153 * month + 2) / 5 + 1);
  t.month = static_cast<int>(month < 10 ? month + 3 : month - 9);
  t.year = year_of_era + era * 400 + (t.month <= 2 ? 1 : 0);
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  t.year_day = kBefore[t.month - 1] + t.day + (t.month > 2 && IsLeap(t.year) ? 1 : 0);
  return t;
}

std::string Pad(int64_t value, size_t width, char fill = '0') {
  std::string digits = std::to_string(value);
  if (digits.size() < width) digits = std::string(width - digits.size(), fill) + digits;
  return digits;
}

// ISO 8601's year and week.
std::pair<int64_t, int> IsoWeek(const Time& t) {
  const int weekday = (t.weekday + 6) % 7;  // Monday is 0
  int week = (t.year_day - weekday + 9) / 7;
  if (week < 1) {
    const int64_t year = t.year - 1;
    const int days = IsLeap(year) ? 366 : 365;
    week = (t.year_day + days - weekday + 9) / 7;
    return {year, week};
  }
  const int days = IsLeap(t.year) ? 366 : 365;
  if (week == 53 && t.year_day - weekday + 3 > days) return {t.year + 1, 1};
  return {t.year, week};
}

// False if the directive is not known.
bool Append(const Time& t, int64_t seconds, char directive, bool padded, Text* out) {
  const auto two = [&](int64_t value) { return padded ? Pad(value, 2) : std::to_string(value); };
  const std::string clock = StrCat(Pad(t.hour, 2), ":", Pad(t.minute, 2));
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  const auto recurse = [&](std::string_view directives) {
    for (const char c : directives) {
      if (c >= 'A' && c <= 'z') {
        Append(t, seconds, c, true, out);
      } else {
        out->push_back(c);
      }
    }
  };
  switch (directive) {
    case 'Y':
      *out += std::to_string(t.year);
      break;
    case 'C':
      *out += two(t.year / 100);
      break;
    case 'y':
      *out += two((t.year % 100 + 100) % 100);
      break;
    case 'm':
      *out += two(t.month);
      break;
    case 'd':
      *out += two(t.day);
      break;
    case 'e':
      *out += padded ? Pad(t.day, 2, ' ') : std::to_string(t.day);
      break;
    case 'B':
      *out += kMonths[t.month - 1];
      break;
    case 'b':
    case 'h':
      *out += kMonths[t.month - 1].substr(0, 3);
      break;
    case 'A':
      *out += kDays[t.weekday];
      break;
    case 'a':
      *out += kDays[t.weekday].substr(0, 3);
      break;
    case 'H':
      *out += two(t.hour);
      break;
    case 'k':
      *out += padded ? Pad(t.hour, 2, ' ') : std::to_string(t.hour);
      break;
    case 'I':
      *out += two(hour12);
      break;
    case 'l':
      *out += padded ? Pad(hour12, 2, ' ') : std::to_string(hour12);
      break;
    case 'M':
      *out += two(t.minute);
      break;
    case 'S':
      *out += two(t.second);
      break;
    case 'f':
      *out += "000000";
      break;
    case 'p':
      *out += t.hour < 12 ? "AM" : "PM";
      break;
    case 'P':
      *out += t.hour < 12 ? "am" : "pm";
      break;
    case 'j':
      *out += padded ? Pad(t.year_day, 3) : std::to_string(t.year_day);
      break;
    case 'u':
      *out += std::to_string(t.weekday == 0 ? 7 : t.weekday);
      break;
    case 'w':
      *out += std::to_string(t.weekday);
      break;
    case 'U':
      *out += two((t.year_day - 1 + 7 - t.weekday) / 7);
      break;
    case 'W':
      *out += two((t.year_day - 1 + 7 - (t.weekday + 6) % 7) / 7);
      break;
    case 'G':
      *out += std::to_string(IsoWeek(t).first);
      break;
    case 'g':
      *out += two(IsoWeek(t).first % 100);
      break;
    case 'V':
      *out += two(IsoWeek(t).second);
      break;
    case 's':
      *out += std::to_string(seconds);
      break;
    case 'D':
    case 'x':
      recurse("m/d/y");
      break;
    case 'F':
      recurse("Y-m-d");
      break;
    case 'T':
    case 'X':
      recurse("H:M:S");
      break;
    case 'R':
      *out += clock;
      break;
    case 'r':
      recurse("I:M:S p");
      break;
    case 'c':
      recurse("a b e H:M:S Y");
      break;
    case 'n':
      out->push_back('\n');
      break;
    case 't':
      out->push_back('\t');
      break;
    case 'z':
    case 'Z':
      break;  // a datetime without a zone has neither
    case '%':
      out->push_back('%');
      break;
    default:
      return false;
  }
  return true;
}

}  // namespace

Value FormatTime(Context* context, std::string_view format, int64_t unix_seconds) {
  // Python's datetime knows the years 1 to 9999.
  if (unix_seconds < -62135596800 || unix_seconds > 253402300799) {
    return context->Fail("the time for strftime_now is outside of the years 1 to 9999");
  }
  const Time time = Decompose(unix_seconds);
  Text out(context->meter());
  out.reserve(format.size());
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const bool padded = format[i + 1] != '-';
    if (!padded) ++i;
    if (i + 1 == format.size() || !Append(time, unix_seconds, format[i + 1], padded, &out)) {
      return context->FailUnsupported(
          StrCat("strftime_now does not know the directive in '", Quoted(format), "'"));
    }
    ++i;
  }
  return context->String(std::move(out));
}

}  // namespace qinfer::tokenizer::jinja

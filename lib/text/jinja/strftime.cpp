// The date that a template asks for, as Python writes it.
#include <algorithm>
#include <chrono>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {

namespace {

using std::string_view;

constexpr size_t kNowhere = string_view::npos;

constexpr string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                   "July",    "August",   "September", "October", "November", "December"};

}  // namespace

Value g_strftime_now(Run& run, const Args& args) {
  using namespace std::chrono;
  // From the year 1 to the year 9999, as Python has them.
  const sys_seconds now{seconds{std::clamp<int64_t>(run.unix_time, -62135596800, 253402300799)}};
  const sys_days date = floor<days>(now);
  const year_month_day ymd(date);
  const hh_mm_ss time(now - date);
  const long year = int{ymd.year()}, month = unsigned{ymd.month()}, day = unsigned{ymd.day()};
  const long hour = time.hours().count(), minute = time.minutes().count(), second = time.seconds().count();
  const long hour_of_half = (hour + 11) % 12 + 1, day_of_year = (date - sys_days{ymd.year() / January / 1}).count() + 1;
  // Numbers, by their letters, with as many digits at least; %e has a space where others have a zero.
  constexpr string_view kNumbers = "YymdeHIMSj", kDigits = "1222222223";
  const long numbers[] = {year, year % 100, month, day, day, hour, hour_of_half, minute, second, day_of_year};
  const string_view weekday_name = kDays[weekday(date).c_encoding()], month_name = kMonths[month - 1];
  const std::pair<char, string_view> words[] = {{'A', weekday_name},
                                                {'a', weekday_name.substr(0, 3)},
                                                {'B', month_name},
                                                {'b', month_name.substr(0, 3)},
                                                {'p', hour < 12 ? "AM" : "PM"},
                                                {'%', "%"}};
  constexpr std::pair<char, string_view> kSeveral[] = {
      {'F', "%Y-%m-%d"}, {'T', "%H:%M:%S"}, {'R', "%H:%M"}, {'D', "%m/%d/%y"}};
  std::pmr::string out(&run.heap), all(args[0].view(), &run.heap);
  if (all.size() > 1000) return run.error("strftime_now: the format has more than 1000 bytes");
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != '%' || i + 1 == all.size()) {
      out += all[i];
      continue;
    }
    const bool is_short = all[++i] == '-' && i + 1 < all.size();  // without zeros
    const char letter = is_short ? all[++i] : all[i];
    const auto is_it = [letter](const auto& one) { return one.first == letter; };
    const auto* several = std::find_if(std::begin(kSeveral), std::end(kSeveral), is_it);
    if (several != std::end(kSeveral) && !is_short) {
      all.insert(i + 1, several->second);
      continue;
    }
    const size_t number = kNumbers.find(letter);
    const auto* word = std::find_if(std::begin(words), std::end(words), is_it);
    if (number == kNowhere && word == std::end(words))
      return run.error("strftime_now: the format %%%c is not supported", letter);
    char text[24];
    const int width = number == kNowhere || is_short ? 1 : kDigits[number] - '0';
    if (number != kNowhere) c_format(text, sizeof(text), letter == 'e' ? "%*ld" : "%0*ld", width, numbers[number]);
    out.append(number != kNowhere ? text : word->second);
  }
  run.has_room(0, out.size());
  return run.new_text(out, is_said(args[0]));
}

}  // namespace weir::jinja

// cli: weir devices, as a table and as JSON.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli_test.h"
#include "weir_cpp.h"

using namespace weir_cli::test;

namespace {

nlohmann::json listed() {
  const Output o = weir({"devices", "--json"});
  assert_works(o);
  assert_string_equal(o.err.c_str(), "");
  assert_int_equal(std::count(o.out.begin(), o.out.end(), '\n'), 1);
  return nlohmann::json::parse(o.out)["devices"];
}

void devices__begin_with_the_processor(void**) {
  const auto devices = listed();
  assert_true(!devices.empty());
  const auto& cpu = devices[0];
  assert_string_equal(cpu["device"].get<std::string>().c_str(), "cpu");
  assert_string_equal(cpu["backend"].get<std::string>().c_str(), "cpu");
  assert_string_equal(cpu["kind"].get<std::string>().c_str(), "cpu");
  assert_int_equal(cpu["index"].get<int>(), 0);
  assert_true(cpu["is_usable"].get<bool>());
  assert_true(cpu["memory_bytes"].get<uint64_t>() > 1 << 20);
  assert_true(!cpu["driver"].get<std::string>().empty());
}

void devices__are_a_table_of_the_same(void**) {
  const auto devices = listed();
  const Output o = weir({"devices"});
  assert_works(o);
  size_t n_lines = 1;
  for (const auto& d : devices) {
    n_lines += d["is_usable"].get<bool>() ? 1 : 2;
    for (const char* field : {"device", "kind", "name", "driver", "why_not"})
      assert_true(contains(o.out, d[field].get<std::string>()));
  }
  assert_int_equal(std::count(o.out.begin(), o.out.end(), '\n'), n_lines);
}

// Those that can be used are taken by the name that is printed.
void devices__have_the_names_that_device_takes(void**) {
  for (const auto& d : listed()) {
    if (!d["is_usable"].get<bool>()) continue;
    const Output o = weir({"plan", "-m", kModel, "--context", "64", "--json", "--device", d["device"]});
    assert_works(o);
    assert_true(nlohmann::json::parse(o.out)["device"] == d["backend"]);
  }
}

// Where the program keeps what drivers compiled.
void devices__cache_folder(void**) {
  const auto folder = [](const char* cache, const char* home) {
    cache == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", cache, 1);
    home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
    return weir_cli::cache_folder();
  };
  const std::string cache = std::getenv("XDG_CACHE_HOME") == nullptr ? "" : std::getenv("XDG_CACHE_HOME");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  assert_true(folder("/var/me/cache", "/home/me") == "/var/me/cache/weir");
  assert_true(folder(nullptr, "/home/me") == "/home/me/.cache/weir");
  assert_true(folder("", "/home/me") == "/home/me/.cache/weir");
  assert_true(folder("cache", "/home/me") == "/home/me/.cache/weir");  // a relative one counts for nothing
  assert_true(folder(nullptr, nullptr).empty());
  assert_true(folder("cache", "me").empty());
  assert_true(folder(("/" + std::string(2000, 'x')).c_str(), nullptr).empty());
  (void)weir_cli::create_runtime(1);  // works without a folder
  (void)folder(cache.empty() ? nullptr : cache.c_str(), home.empty() ? nullptr : home.c_str());
}

void devices__wrong_usage(void**) {
  assert_fails(weir({"devices", "more"}), 2, {"more"});
  assert_fails(weir({"devices", "--jsonn"}), 2, {"did you mean --json?"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(devices__begin_with_the_processor),
                              cmocka_unit_test(devices__are_a_table_of_the_same),
                              cmocka_unit_test(devices__have_the_names_that_device_takes),
                              cmocka_unit_test(devices__cache_folder), cmocka_unit_test(devices__wrong_usage)};
  return cmocka_run_group_tests_name("cli/devices", tests, make_folder, remove_folder);
}

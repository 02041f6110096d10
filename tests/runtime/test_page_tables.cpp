// runtime: of the two copies of a session's tables, the one that is out of date is brought up to date when it is asked
// for, and the other one never is.
#include "runtime/page_tables.h"

#include "tests/cmocka_cpp.h"

namespace {

using weir::PageTables;
using weir::Status;

struct Copies {
  PageTables tables;
  int n_fetched = 0, n_sent = 0;
  Status result;

  Status fetch() {
    return tables.fetch([&] { return ++n_fetched, result; });
  }
  Status send() {
    return tables.send([&] { return ++n_sent, result; });
  }
  void check(int fetched, int sent) {
    assert_true(fetch().ok());
    assert_true(send().ok());
    assert_int_equal(n_fetched, fetched);
    assert_int_equal(n_sent, sent);
  }
};

void page_tables__are_sent_after_a_change(void**) {
  Copies c;
  c.check(0, 0);
  c.tables.change()->set_counters({});
  c.check(0, 1);
  c.check(0, 1);
  {
    const PageTables::Change change = c.tables.change();
    c.check(0, 2);  // as they are at this moment
    c.check(0, 2);
  }
  c.check(0, 3);
  c.check(0, 3);
}

void page_tables__are_fetched_after_a_step(void**) {
  Copies c;
  c.tables.leave_to_device();
  c.tables.count({});
  c.check(1, 0);
  c.check(1, 0);
}

void page_tables__that_are_made_anew_are_not_fetched(void**) {
  Copies c;
  c.tables.leave_to_device();
  c.tables.replace()->set_counters({});
  c.check(0, 1);
}

void page_tables__are_out_of_date_after_a_failure(void**) {
  Copies c;
  c.tables.change()->set_counters({});
  c.tables.leave_to_device();
  c.result = Status(WEIR_ERR_DEVICE_LOST);
  assert_false(c.fetch().ok());
  assert_false(c.send().ok());
  c.result = {};
  c.check(2, 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(page_tables__are_sent_after_a_change),
      cmocka_unit_test(page_tables__are_fetched_after_a_step),
      cmocka_unit_test(page_tables__that_are_made_anew_are_not_fetched),
      cmocka_unit_test(page_tables__are_out_of_date_after_a_failure),
  };
  return cmocka_run_group_tests_name("runtime/page_tables", tests, nullptr, nullptr);
}

/* api: rendering a template over variables in JSON: the text, what is refused, and memory of the runtime alone. */
#include "api_test.h"

static weir_status render(weir_runtime *runtime, const char *source, const char *variables, char *out,
                          uint64_t capacity, uint64_t *n_bytes) {
    return weir_template_render(runtime, source, strlen(source), variables, strlen(variables), 1795694400, out,
                                capacity, n_bytes);
}

static void template__gives_its_text(void **state) {
    (void)state;
    weir_runtime *runtime = NULL;
    assert_int_equal(weir_runtime_create(NULL, &runtime), WEIR_OK);
    char out[64];
    uint64_t n = 0;
    const char *source = "{% for m in messages %}{{ m.role ~ '|' ~ m.content | upper }};{% endfor %}"
                         "{{ strftime_now('%Y') }}";
    const char *variables = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";
    assert_int_equal(render(runtime, source, variables, out, sizeof(out), &n), WEIR_OK);
    assert_int_equal(n, 12);
    assert_memory_equal(out, "user|HI;2026", 12);
    assert_int_equal(render(runtime, source, variables, NULL, 0, &n), WEIR_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(n, 12);
    weir_runtime_destroy(runtime);
}

static void template__refusals_have_a_line(void **state) {
    (void)state;
    weir_runtime *runtime = NULL;
    assert_int_equal(weir_runtime_create(NULL, &runtime), WEIR_OK);
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    assert_int_equal(weir_runtime_memory(runtime, &before), WEIR_OK);
    char out[8] = "before";
    uint64_t n = 77;
    assert_int_equal(render(runtime, "\n{{ raise_exception('no') }}", "{}", out, 8, &n), WEIR_ERR_INVALID_ARG);
    assert_string_equal(weir_last_error(), "chat template, line 2: no");
    assert_int_equal(render(runtime, "{{ x.y }}", "{}", out, 8, &n), WEIR_ERR_FORMAT);
    assert_string_equal(weir_last_error(), "chat template, line 1: 'x' is undefined");
    assert_int_equal(render(runtime, "{% if", "{}", out, 8, &n), WEIR_ERR_FORMAT);
    assert_int_equal(render(runtime, "{{ 'x' * 999999999 }}", "{}", out, 8, &n), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(render(runtime, "x", "[]", out, 8, &n), WEIR_ERR_INVALID_ARG);
    assert_int_equal(render(runtime, "x", "{", out, 8, &n), WEIR_ERR_INVALID_ARG);
    assert_non_null(strstr(weir_last_error(), "variables, line 1"));
    assert_int_equal(render(NULL, "x", "{}", out, 8, &n), WEIR_ERR_INVALID_ARG);
    assert_int_equal(render(runtime, "x", "{}", NULL, 8, &n), WEIR_ERR_INVALID_ARG);
    assert_int_equal(render(runtime, "x", "{}", out, 8, NULL), WEIR_ERR_INVALID_ARG);
    assert_int_equal(n, 77);
    assert_string_equal(out, "before");
    assert_int_equal(weir_runtime_memory(runtime, &after), WEIR_OK);
    assert_int_equal(before.bytes, after.bytes);
    weir_runtime_destroy(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template__gives_its_text),
        cmocka_unit_test(template__refusals_have_a_line),
    };
    return cmocka_run_group_tests_name("api/template", tests, NULL, NULL);
}

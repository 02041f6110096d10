# What differs from the defaults: label cmocka and the folder's name, 120 seconds (in vulkan 480); under a sanitizer all
# limits are ten times as long. Labels with a meaning:
#   threads  runs several threads; ./dev test --long repeats it under ThreadSanitizer
#   slow     only ./dev test --long runs it
#   real     only ./dev test --real runs it; the label of all of tests/real
# COST has about the seconds of tests that take longer than most, which begin first (those of vulkan before them), so
# that none of them is left when all others are done.
# One line per test: weir_test_labels(<area>/<stem> LABELS <label>... TIMEOUT <seconds> COST <seconds>)
weir_test_labels(api/test_cancel LABELS threads)
weir_test_labels(api/test_fork TIMEOUT 300)
weir_test_labels(api/test_lfps LABELS threads)
weir_test_labels(api/test_rewind TIMEOUT 300)
weir_test_labels(api/test_step_many TIMEOUT 300)
weir_test_labels(api/test_step_many_threads LABELS threads)
weir_test_labels(api/test_threads LABELS threads TIMEOUT 300)
weir_test_labels(api/test_spill_faults COST 20)
weir_test_labels(cli/test_demo TIMEOUT 300 COST 30)
weir_test_labels(cli/test_eval COST 25)
weir_test_labels(cli/test_weir_program COST 20)
weir_test_labels(device/test_equality TIMEOUT 300)
weir_test_labels(device/test_pages COST 35)
weir_test_labels(device/test_step_many LABELS threads)
weir_test_labels(device/test_threads LABELS threads)
weir_test_labels(kv/test_spill_copy LABELS threads)
weir_test_labels(kv/test_spill_family LABELS threads)
weir_test_labels(kv/test_spill_store LABELS threads)
weir_test_labels(real/test_real_models TIMEOUT 900)
weir_test_labels(text/test_threads LABELS threads)

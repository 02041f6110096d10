#!/bin/sh
# Tests tests/gpu/run with programs that only print their arguments: which tests run under which tool and in which
# order, what becomes of failures, that results are there as programs end, and that no process outlives the script.
set -eu
run=$(cd "$(dirname "$0")" && pwd)/run
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset WEIR_TEST_STEPS WEIR_TEST_FILTER WEIR_TEST_BACKEND JOBS TEST_SECONDS SANITIZE_SECONDS
PATH=$folder/tools:$PATH
export PATH OUT="$folder/out"
mkdir -p tools bin/ops bin/device tsan/bin/device data
cp "$run" run
echo abc1234 >commit

fail() {
    echo "$*" >&2
    for file in out/*.txt out/*.log; do [ ! -e "$file" ] || sed "s|^|$file: |" "$file" >&2; done
    exit 1
}
# has TEXT: a line of what was printed, blanks squeezed
has() { tr -s ' ' <printed | grep -qF -- "$1" || fail "no line with '$1'"; }
program() {
    cat >"$1" <<'TEXT'
#!/bin/sh
echo "filter ${WEIR_TEST_FILTER:-none} steps ${WEIR_TEST_STEPS:-none}" >>"$OUT/given"
[ -z "${STUB_SLEEPS:-}" ] || { echo $$ >"$OUT/sleeping"; exec sleep 300; }
echo "[       OK ] one"
[ "${STUB_FAILS:-}" != yes ] || { echo "WARNING: ThreadSanitizer: data race"; exit 66; }
echo "[==========] 1 test(s) run."
TEXT
    chmod +x "$1"
}
program bin/ops/test_rms_norm
program bin/device/test_threads
program tsan/bin/device/test_threads
cat >tools/compute-sanitizer <<'TEXT'
#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 99" ] || exit 3
shift 4
"$@"
echo "========= ERROR SUMMARY: 0 errors"
TEXT
chmod +x tools/compute-sanitizer

sh run sanitize >printed || fail "sanitize failed"
has "commit abc1234"
has "ops/test_rms_norm * memcheck 1 "
has "ops/test_rms_norm * racecheck 1 "
has "device/test_threads * memcheck 1 "
has "ERROR SUMMARY: 0 errors"
has "device/test_threads * tsan 1 "
has " 0 reports"
has "4 runs, 0 with findings or failures"
[ "$(grep -c '^filter \* steps none$' out/given)" -eq 3 ] || fail "three runs have steps of their own"
[ "$(grep -c '^filter \* steps [1-9]' out/given)" -eq 1 ] || fail "one run has few steps"
grep -q "=== memcheck device/test_threads" out/sanitize.log || fail "sanitize.log does not say what ran"

sh run sanitize tsan >printed || fail "sanitize tsan failed"
has "1 runs, 0 with findings or failures"
sh run sanitize "racecheck ops" >printed || fail "sanitize racecheck ops failed"
has "1 runs, 0 with findings or failures"
if STUB_FAILS=yes sh run sanitize tsan >printed; then fail "a report of ThreadSanitizer passed"; fi
has " 1 reports; exit status 66"
if sh run sanitize nothing >printed 2>&1; then fail "a pattern without tests passed"; fi
has "no test matches"

sh run tests threads >printed || fail "tests failed"
has "device/test_threads 1 0 0 "
if STUB_FAILS=yes sh run tests threads >printed; then fail "a failing program passed"; fi
has "exit status 66"

# A program that skipped all of its tests is neither passed nor failed.
cat >bin/ops/test_skipped <<'TEXT'
#!/bin/sh
echo "[==========] 2 test(s) run."
echo "[  PASSED  ] 0 test(s)."
echo " 2 SKIPPED TEST(S)"
exit 77
TEXT
chmod +x bin/ops/test_skipped
sh run tests ops/test_skipped >printed || fail "a skipped program failed"
has "ops/test_skipped 0 0 2 "
has "all skipped"
rm bin/ops/test_skipped

# What did not run is no success: here the first program ends what would begin the second one.
cat >bin/ops/test_aaa <<'TEXT'
#!/bin/sh
kill -9 "$(cat "$OUT/starter")"
exec sleep 1
TEXT
cat >tools/xargs <<'TEXT'
#!/bin/sh
echo $$ >"$OUT/starter"
while read -r word; do "$5" "$6" "$7" "$8" "$word"; done
TEXT
chmod +x bin/ops/test_aaa tools/xargs
if sh run tests ops >printed 2>&1; then fail "a program that did not run passed"; fi
has "ops/test_rms_norm 0 1 0 0 s did not run"
rm bin/ops/test_aaa tools/xargs

# until CONDITION...: half a minute at most
until_true() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || return 1
        sleep 0.2
    done
}
is_gone() { ! kill -0 "$1"; }
for signal in TERM HUP; do
    for command in "tests threads" "sanitize tsan"; do
        rm -f out/sleeping
        # shellcheck disable=SC2086
        STUB_SLEEPS=yes sh run $command >printed 2>&1 &
        runner=$!
        until_true test -s out/sleeping || fail "$command began no program"
        kill -$signal $runner
        until_true is_gone "$(cat out/sleeping)" || fail "$command left a program running"
        if wait $runner; then fail "$command passed after $signal"; fi
    done
done
# The longest programs begin first; an op that Vulkan lacks is left out there.
program bin/ops/test_matmul
program bin/ops/test_attn_stamp
JOBS=1 sh run tests ops >printed || fail "tests ops failed"
order=$(sed -n 's/^=== ops_test_//p' out/tests.log | tr '\n' ' ')
[ "$order" = "matmul attn_stamp rms_norm " ] || fail "another order: $order"
DEVICE=vulkan sh run tests ops >printed || fail "tests ops on Vulkan failed"
if grep -q attn_stamp printed; then fail "Vulkan has no attn_stamp"; fi
rm bin/ops/test_matmul bin/ops/test_attn_stamp

# Results are there when a program ends, and a run that is cut off adds what was under way. Programs leave their files
# in a folder of the run.
cat >bin/ops/test_endless <<'TEXT'
#!/bin/sh
: >left_over
echo "[       OK ] before the end"
echo $$ >"$OUT/sleeping"
exec sleep 300
TEXT
chmod +x bin/ops/test_endless
mkdir tmp
for signal in KILL TERM; do
    rm -f out/sleeping out/tests.*
    TMPDIR=$folder/tmp sh run tests ops >printed 2>&1 &
    runner=$!
    until_true grep -q '^=== ops_test_rms_norm' out/tests.log || fail "no log of a program that has ended"
    until_true test -s out/sleeping || fail "the endless program did not begin"
    grep -q '^ops/test_rms_norm  *1  *0  *0 ' out/tests.txt || fail "no line of a program that has ended"
    kill -$signal $runner
    if wait $runner 2>/dev/null; then fail "tests passed after $signal"; fi
    grep -q '^ops/test_rms_norm  *1  *0  *0 ' out/tests.txt || fail "$signal took a line away"
    kill "$(cat out/sleeping)" 2>/dev/null || true
    until_true grep -q '^ops/test_endless' out/tests.txt || fail "no line of the program that was under way"
done
grep -q '^ops/test_endless  *1  *1  *0 .* cut off' out/tests.txt || fail "no line of the program that was under way"
grep -q 'before the end' out/tests.log || fail "no log of the program that was under way"
[ ! -e left_over ] || fail "a program left a file in the bundle"
rm bin/ops/test_endless
# A bundle as it is made: programs and data come out of one archive, and a damaged one leaves nothing behind.
mkdir -p packed/bin packed/data/samples
echo golden >packed/data/samples/model
cp run packed/run
(cd packed && tar -cf - bin data | xz -1 >programs.tar.xz && rm -r bin data)
(cd packed && sh run unpack && [ -d bin ] && [ "$(cat data/samples/model)" = golden ]) || fail "nothing was unpacked"
(cd packed && rm -r bin data && head -c 100 programs.tar.xz >half && mv half programs.tar.xz)
if (cd packed && sh run unpack >printed 2>&1); then fail "a damaged archive was unpacked"; fi
[ ! -e packed/bin ] && [ ! -e packed/data ] || fail "a damaged archive left something"
echo "passed"

#!/bin/sh
# tests/gpu/run with programs that only say what they were given: which tests run under which tool, what becomes of failures, and that nothing outlives it.
set -eu
run=$(cd "$(dirname "$0")" && pwd)/run
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
PATH=$folder/tools:$PATH
export PATH OUT="$folder/out"
mkdir -p tools bin/ops bin/cuda tsan/bin/cuda data
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
program bin/cuda/test_threads
program tsan/bin/cuda/test_threads
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
has "cuda/test_threads * memcheck 1 "
has "ERROR SUMMARY: 0 errors"
has "cuda/test_threads * tsan 1 "
has " 0 reports"
has "4 runs, 0 with findings or failures"
[ "$(grep -c '^filter \* steps none$' out/given)" -eq 3 ] || fail "three runs have steps of their own"
[ "$(grep -c '^filter \* steps [1-9]' out/given)" -eq 1 ] || fail "one run has few steps"
grep -q "=== 001\|=== memcheck cuda/test_threads" out/sanitize.log || fail "sanitize.log does not say what ran"

sh run sanitize tsan >printed || fail "sanitize tsan failed"
has "1 runs, 0 with findings or failures"
sh run sanitize "racecheck ops" >printed || fail "sanitize racecheck ops failed"
has "1 runs, 0 with findings or failures"
if STUB_FAILS=yes sh run sanitize tsan >printed; then fail "a report of ThreadSanitizer passed"; fi
has " 1 reports; exit status 66"
if sh run sanitize nothing >printed 2>&1; then fail "a pattern without tests passed"; fi
has "no test matches"

sh run tests threads >printed || fail "tests failed"
has "cuda/test_threads 1 0 0 "
if STUB_FAILS=yes sh run tests threads >printed; then fail "a failing program passed"; fi
has "exit status 66"

for command in "tests threads" "sanitize tsan"; do
    # shellcheck disable=SC2086
    STUB_SLEEPS=yes timeout 2 sh run $command >printed 2>&1 && fail "$command ended by itself"
    sleep 1
    if kill "$(cat out/sleeping)" 2>/dev/null; then fail "$command left a program running"; fi
    rm out/sleeping
done
echo "passed"

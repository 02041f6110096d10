#!/bin/sh
# The symbols that libweir.so exports are those of docs/abi/symbols.txt, no more and no fewer, all with version WEIR_1,
# and each is declared with WEIR_API in a public header.
# Usage: symbols.sh LIBRARY SYMBOLS_TXT HEADER_FOLDER
set -u
library=$1 list=$2 headers=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "$1:"
    sed 's/^/  /' "$2"
    failures=$((failures + 1))
}

LC_ALL=C
export LC_ALL
"${NM:-nm}" -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$work/versioned" || exit 1
sed 's/@.*//' "$work/versioned" >"$work/exported"
grep -v '^#' "$list" | grep . | sort >"$work/listed"
# A declaration begins with WEIR_API and may go on in the next line; the name is the word before the first parenthesis.
cat "$headers"/*.h | sed -n '/^WEIR_API /s/^WEIR_API [^(]*[ *]\(weir_[a-z0-9_]*\)(.*/\1/p' | sort >"$work/declared"

comm -23 "$work/exported" "$work/listed" >"$work/diff"
[ -s "$work/diff" ] && fail "exported, but not in $(basename "$list") (new? then run ./dev abi-update)" "$work/diff"
comm -13 "$work/exported" "$work/listed" >"$work/diff"
[ -s "$work/diff" ] && fail "in $(basename "$list"), but not exported (removing a symbol breaks programs)" "$work/diff"
comm -23 "$work/exported" "$work/declared" >"$work/diff"
[ -s "$work/diff" ] && fail "exported, but declared in no public header" "$work/diff"
comm -13 "$work/exported" "$work/declared" >"$work/diff"
[ -s "$work/diff" ] && fail "declared in a public header, but not exported" "$work/diff"
grep -v '@@WEIR_1$' "$work/versioned" >"$work/diff"
[ -s "$work/diff" ] && fail "without version WEIR_1" "$work/diff"

echo "$(wc -l <"$work/exported") symbols exported, $failures differences"
[ "$failures" -eq 0 ] && [ -s "$work/exported" ]

#!/bin/sh
# The symbols that libweir.so exports are those of docs/abi/symbols.txt, no more and no fewer. Each is declared with
# WEIR_API in a public header, and its version is WEIR_ and the @since of that declaration, which is not newer than
# WEIR_VERSION_MAJOR.WEIR_VERSION_MINOR.
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
# Each declaration with the last @since before it, which is in its own comment (.ci/check docs sees to that).
awk 'FNR == 1 { since = "" }
     match($0, /@since +[0-9]+\.[0-9]+/) { since = substr($0, RSTART + 6, RLENGTH - 6); gsub(/ /, "", since) }
     /^WEIR_API / && match($0, /weir_[a-z0-9_]*\(/) {
         print substr($0, RSTART, RLENGTH - 1) "@@WEIR_" since; since = "" }' "$headers"/*.h | sort >"$work/since"
comm -23 "$work/since" "$work/versioned" >"$work/diff"
[ -s "$work/diff" ] && fail "@since of a header, but not the node of lib/weir.map" "$work/diff"
comm -13 "$work/since" "$work/versioned" >"$work/diff"
[ -s "$work/diff" ] && fail "the node of lib/weir.map, but not @since of a header" "$work/diff"
number() { sed -n "s/^#define WEIR_VERSION_$1 \([0-9]*\).*/\1/p" "$headers/base.h"; }
newest=$(grep -ohE '@since +[0-9.]+[0-9]' "$headers"/*.h | sed 's/@since *//' | sort -V | tail -n 1)
echo "newest @since is $newest, base.h says $(number MAJOR).$(number MINOR)" >"$work/diff"
[ "$newest" = "$(number MAJOR).$(number MINOR)" ] || fail "WEIR_VERSION_MINOR" "$work/diff"

echo "$(wc -l <"$work/exported") symbols exported, $failures differences"
[ "$failures" -eq 0 ] && [ -s "$work/exported" ]

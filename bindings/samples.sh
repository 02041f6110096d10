# For run-tests of a binding to source: its examples beside the samples in C. Needs WEIR_DIR, WEIR_MODEL, `scratch`, a
# folder for what is built, the function `fail`, and `example NAME ARGUMENT...`, which runs an example of the binding.
# shellcheck shell=sh disable=SC2154

cc=${CC:-$(command -v cc || command -v gcc || command -v clang)} || fail "there is no C compiler"

# Questions for a conversation at the keyboard.
questions() { printf 'Who are you?\n/again\n/undo\nWhat is x0, if x0 = 7?\nWho are you?\n'; }

# compare NAME SAMPLE ARGUMENT...: the example says what the sample says, byte for byte.
compare() {
    name=$1 sample=$2
    shift 2
    "$cc" -I "$WEIR_DIR/include" "../../samples/$sample.c" -L "$WEIR_DIR/lib" -lweir -Wl,-rpath,"$WEIR_DIR/lib" \
        -o "$scratch/$sample"
    questions | "$scratch/$sample" "$WEIR_MODEL" "$@" >"$scratch/$sample.txt" && of_c=0 || of_c=$?
    questions | example "$name" "$WEIR_MODEL" "$@" >"$scratch/$name.txt" && of_binding=0 || of_binding=$?
    [ "$of_c" -eq 0 ] || fail "$sample: exit status $of_c"
    [ "$of_binding" -eq 0 ] || fail "$name: exit status $of_binding"
    [ -s "$scratch/$name.txt" ] || fail "$name prints nothing"
    cmp "$scratch/$sample.txt" "$scratch/$name.txt" || fail "$name does not print what $sample prints"
    echo "$name: $(wc -l <"$scratch/$name.txt") lines, as in C"
}

#!/usr/bin/env python3
"""What a token costs in a language, and in C beside it.

    bench.py LANGUAGE MODEL [TOKENS [ROUNDS]]       WEIR_DIR: folder with include/ and lib/

LANGUAGE is python or csharp (with mono); Rust and Swift measure both in one process, `cargo run --release --example
overhead` and `swift run -c release weir-bench`. Two programs, bench.c and that of the language, draw the same 2,000
tokens of the same model on one thread, by turns; printed are the medians of the rounds. What the model computes varies
by more than what is looked for, so that time, decode_ns of the stats, is subtracted."""
import glob
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def program_in_c(folder, scratch):
    program = os.path.join(scratch, "bench")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-I", f"{folder}/include", str(HERE / "bench.c"),
                    "-o", program, "-L", f"{folder}/lib", "-lweir", f"-Wl,-rpath,{folder}/lib"], check=True)
    return [program]


def program_in_csharp(scratch):
    program = os.path.join(scratch, "bench.exe")
    subprocess.run(["mcs", "-unsafe", "-optimize", f"-out:{program}", str(HERE / "csharp/bench.cs"),
                    *glob.glob(str(HERE / "csharp/src/*.cs"))], check=True)
    return ["mono", program]


PROGRAMS = {"python": lambda scratch: [sys.executable, str(HERE / "python/bench.py")], "csharp": program_in_csharp}


def main(language, model, n_tokens="2000", n_rounds="7"):
    with tempfile.TemporaryDirectory() as scratch:
        commands = program_in_c(os.environ["WEIR_DIR"], scratch), PROGRAMS[language](scratch)
        rounds = [[[float(number) for number in subprocess.run([*command, model, n_tokens], check=True,
                                                               stdout=subprocess.PIPE).stdout.split()]
                   for command in commands] for _ in range(int(n_rounds))]
    for i, name in (0, "pushed"), (2, "pulled"):
        c, c_outside, own, own_outside = (statistics.median(r[who][i + part] for r in rounds) / 1e3
                                          for who in (0, 1) for part in (0, 1))
        print(f"{name}: C {c:.1f} us a token, {c_outside:.1f} of them outside of the model; {language} {own:.1f}, "
              f"{own_outside:.1f}; overhead {own_outside - c_outside:+.1f} us a token")


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1] not in PROGRAMS or "WEIR_DIR" not in os.environ:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])

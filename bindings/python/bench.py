"""What a token costs in Python, and in C beside it.

    bench.py MODEL [TOKENS [ROUNDS]]       WEIR_DIR: folder with include/ and lib/

Both draw the same 2,000 tokens of the same model on one thread, by turns; printed are the medians of the rounds. What
the model computes varies by more than what is looked for, so that time, decode_ns of the stats, is subtracted."""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import weir  # noqa: E402


def of_python(model, n_tokens):
    """As bench.c prints it."""
    n_bytes = 0

    def take(event):
        nonlocal n_bytes
        n_bytes += len(event.text)

    def pull():
        nonlocal n_bytes
        for event in session.events(options):
            n_bytes += len(event.text)

    options = weir.GenerateOptions(max_tokens=n_tokens, flags=weir.GenerateFlags.IGNORE_EOS)
    times = []
    with weir.Session(model, context_tokens=n_tokens + 64, policy="sink", budget_tokens=64,
                      batch_tokens=16) as session:
        for answer in lambda: session.generate(options, on_token=take), pull:
            session.reset()
            session.prompt([weir.Message("user", "Who are you?")])
            inside = session.stats.decode_ns
            started = time.perf_counter_ns()
            answer()
            elapsed = time.perf_counter_ns() - started
            times += [elapsed / n_tokens, (elapsed - session.stats.decode_ns + inside) / n_tokens]
    assert n_bytes > 0
    return times


def main(model_path, n_tokens="2000", n_rounds="7"):
    folder = os.environ["WEIR_DIR"]
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, "bench")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-I", f"{folder}/include", str(HERE / "bench.c"),
                        "-o", program, "-L", f"{folder}/lib", "-lweir", f"-Wl,-rpath,{folder}/lib"], check=True)
        rounds = []
        with weir.Runtime(n_threads=1) as runtime, weir.Model(model_path, runtime) as model:
            for _ in range(int(n_rounds)):
                printed = subprocess.run([program, model_path, n_tokens], check=True, stdout=subprocess.PIPE).stdout
                rounds.append(([float(number) for number in printed.split()], of_python(model, int(n_tokens))))
    for i, name in (0, "pushed"), (2, "pulled"):
        c, c_outside, python, python_outside = (statistics.median(r[who][i + part] for r in rounds) / 1e3
                                                for who in (0, 1) for part in (0, 1))
        print(f"{name}: C {c:.1f} us a token, {c_outside:.1f} of them outside of the model; Python {python:.1f}, "
              f"{python_outside:.1f}; overhead {python_outside - c_outside:+.1f} us a token")


main(*sys.argv[1:])

"""What a token costs in Python: the partner of ../bench.c, which ../bench.py starts by turns with it.

    bench.py MODEL TOKENS

Prints as bench.c does, of an answer that is pushed and of one that is pulled, nanoseconds a token in all and outside of
what the library computes. A first round is not counted."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import weir  # noqa: E402


def main(model_path, n_tokens):
    n_bytes = 0

    def take(event):
        nonlocal n_bytes
        n_bytes += len(event.text)

    def pull():
        nonlocal n_bytes
        for event in session.events(options):
            n_bytes += len(event.text)

    options = weir.GenerateOptions(max_tokens=n_tokens, flags=weir.GenerateFlags.IGNORE_EOS)
    ways = (lambda: session.generate(options, on_token=take), pull)
    with weir.Runtime(n_threads=1) as runtime, weir.Model(model_path, runtime) as model:
        for is_counted in False, True:
            with weir.Session(model, context_tokens=n_tokens + 64, policy="sink", budget_tokens=64,
                              batch_tokens=16) as session:
                for answer in ways:
                    session.reset()
                    session.prompt([weir.Message("user", "Who are you?")])
                    inside = session.stats.decode_ns
                    started = time.perf_counter_ns()
                    answer()
                    elapsed = time.perf_counter_ns() - started
                    outside = elapsed - (session.stats.decode_ns - inside)
                    if is_counted:
                        print(f"{elapsed / n_tokens:.0f} {outside / n_tokens:.0f}")
    assert n_bytes > 0


main(sys.argv[1], int(sys.argv[2]))

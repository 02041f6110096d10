"""Long reasoning in a fixed footprint: the KV memory gets a budget before the first token and never exceeds it.

    budget.py MODEL.gguf [BUDGET_TOKENS]

Plans a session, compares the plan with what the application can spare, lets the model think for longer than the budget
holds, and compares the plan with what was really used.
"""
import sys

import weir

SPARE_BYTES = 64 << 20
N_START, N_STEPS = 12, 60


def problem() -> str:
    """A chain of sums whose answer takes some thousand tokens of thought."""
    start = ", ".join(f"x{i} = {(37 * i + 11) % 100}" for i in range(N_START))
    return f"Start: {start}. Rule: x[n] = x[n-{N_START}] + x[n-5]. Work modulo 100. Find x{N_START + N_STEPS - 1}."


def main(path: str, budget: str = "512") -> bool:
    # RaaS keeps the prompt and the pages that the reasoning still looks at; the stalest page makes room.
    options = weir.SessionOptions(policy="raas", budget_tokens=int(budget))
    with weir.Model(path) as model:
        plan = model.plan(options)  # allocates nothing
        print(f"plan: {plan.total_bytes:,} bytes, {plan.kv_bytes:,} of them KV pages for {plan.budget_tokens} tokens")
        if plan.total_bytes > SPARE_BYTES:
            sys.exit(f"that is more than the {SPARE_BYTES:,} bytes to spare")
        with weir.Session(model, options) as session:
            session.prompt([weir.Message("user", problem())])
            text = "".join(event.text for event in session.events())
            print(f"answer: {text.strip().splitlines()[-1]}")
            stats, memory = session.stats, session.memory
    print(f"thought for {stats.n_decode} tokens; {stats.pages_evicted} pages left the KV memory")
    print(f"peak: {memory.peak_bytes:,} bytes; allocations while decoding: {memory.allocs_while_decoding}")
    return memory.peak_bytes == plan.total_bytes and memory.allocs_while_decoding == 0


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)

"""A conversation at the keyboard: all messages are kept here, and the session is made to hold them before each answer.

    chat.py MODEL.gguf [SYSTEM]

A line is a question. "/again" asks for another answer to the last one, "/undo" takes the last question and its answer
back, and the end of the input ends the program. Ctrl-C stops an answer, and what was said of it stays.
"""
import signal
import sys
from typing import List

import weir


def main(path: str, system: str = "") -> None:
    messages: List[weir.Message] = [weir.Message("system", system)] if system else []
    n_system = len(messages)
    with weir.Model(path) as model, weir.Session(model) as session:
        session.set_sampling(temperature=0.8, min_p=0.05, seed=1)  # another seed for other answers
        signal.signal(signal.SIGINT, lambda number, frame: session.cancel())
        print("> ", end="", flush=True)
        for line in map(str.strip, sys.stdin):
            if line == "/undo":
                del messages[max(n_system, len(messages) - 2):]
            elif line != "/again" or len(messages) > n_system:
                if line == "/again":
                    messages.pop()
                else:
                    messages.append(weir.Message("user", line))
                answer(session, messages)
            print("> ", end="", flush=True)
    print()


def answer(session: weir.Session, messages: List[weir.Message]) -> None:
    """Shows it and keeps it among the messages, or leaves out the question that could not be read."""
    session.clear_cancel()  # what was meant for the turn before
    try:
        # When the context is full the oldest turns make room.
        session.prompt(messages, flags=weir.PromptFlags.DROP_OLDEST, reserve_tokens=64)
    except weir.WeirError as error:
        print(error, file=sys.stderr)
        messages.pop()
        return
    for event in session.events(max_tokens=2048):
        print(event.text, end="", flush=True)
    print("" if event.stop == weir.StopReason.EOS else f" [{event.stop.name.lower()}]")
    messages.append(session.answer()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])

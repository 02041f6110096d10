"""The shortest whole program: open a model, ask one question, print the answer.

    hello.py MODEL.gguf [QUESTION]
"""
import sys

import weir


def main(path: str, question: str = "Who are you?") -> None:
    with weir.Model(path) as model, weir.Session(model) as session:
        session.prompt([weir.Message("user", question)])
        # With the marks of thoughts, such as <think>.
        for event in session.events(max_tokens=512, flags=weir.GenerateFlags.SPECIAL_TEXT):
            print(event.text, end="", flush=True)
        print()


if __name__ == "__main__":
    main(*sys.argv[1:])

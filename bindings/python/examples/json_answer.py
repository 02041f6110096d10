"""Answers that a program can read: whatever the model would say, the answer is JSON of this schema.

    json_answer.py MODEL.gguf [QUESTION]

Its name is not json.py, as a script's folder is where Python looks for its own module json, too.
"""
import json
import sys

import weir

SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 80},
        "kind": {"enum": ["number", "name", "other"]},
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
    },
    "required": ["answer", "kind", "confidence"],
    "additionalProperties": False,
}


def main(path: str, question: str = "What is the capital of France? Answer in JSON.") -> None:
    with weir.Model(path) as model, weir.Session(model) as session:
        # Compiled once, for any number of sessions. A keyword that is not supported is an error here.
        session.set_constraint(weir.Constraint(model, weir.ConstraintKind.JSON_SCHEMA, SCHEMA))
        session.prompt([weir.Message("user", question)])
        answer = "".join(event.text for event in session.events(max_tokens=2048)
                         if event.segment == weir.Segment.ANSWER)  # what it thinks is free
    print(json.dumps(json.loads(answer), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a user's code with types looks like, for mypy --strict: names that are exported, and the types of results."""
from typing import List, Optional

import weir


def use(path: str, runtime: Optional[weir.Runtime] = None) -> List[str]:
    texts: List[str] = []

    def show(event: weir.TokenEvent) -> Optional[bool]:
        texts.append(event.text)
        return None

    def mask(info: weir.MaskInfo) -> Optional[bool]:
        info.words[0] &= ~info.tokens[0]
        return None

    try:
        with weir.Model(path, runtime) as model, weir.Session(model, weir.preset("chat")) as session:
            report, spans = session.prompt([weir.Message("user", "Hello"), {"role": "user", "content": b"Hello"}])
            n: int = report.n_tokens + spans[0].first + model.info.vocab_size + model.plan().total_bytes
            session.set_token_mask(mask)
            session.generate(on_token=show, stop=["x"], max_tokens=n)
            for event in session.events(weir.GenerateOptions(n_top=1)):
                if event.kind == weir.EventKind.TOKEN and event.segment is weir.Segment.ANSWER:
                    texts.append(f"{event.text} {event.logprob:.1f} {event.top[0].token}")
            message, is_malformed = session.answer()
            texts.append(f"{message.role} {is_malformed} {session.logits()[0]}")
    except weir.BudgetError as error:
        texts.append(f"{error.status.name}: {error}")
    except (weir.WeirError, weir.ClosedError, weir.LibraryError):
        raise
    return texts


async def use_async(session: weir.Session) -> weir.StopReason:
    async for event in session.stream(max_tokens=5):
        last = event
    return last.stop

"""The screenshots of docs/images: of the page with the sample answers of mock_server.py, in light, in dark and on a
phone, and of a chain of reasoning by `weir serve` with the model of the repository."""

import time

QUESTION = ("How many ways are there to climb 12 stairs, taking one, two or three at a time, if step 7 is broken? "
            "Show the same in code.")
CHAIN = "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x{}."
TOKENS = 5400       # of the conversation in the pictures
LIMIT = 200000      # bytes of a picture


def sample_shot(flows, theme, width, height, phone=False):
    """A conversation near its budget, with others in the list."""
    b = flows.browser
    flows.begin()
    flows.flag(story_delay=0.03)      # as fast as such a model is
    b.size(width, height, phone=phone)
    b.media(prefers_color_scheme=theme)
    if phone:
        b.driver.refresh()
        b.wait("document.body.classList.contains('ready')", "reloaded")
    else:
        for text in ("The longest river that flows north", "Sourdough at 24 °C, a plan", "Regex for dates, explained"):
            b.ask(text)
            b.click("#new")
    b.type(QUESTION)
    b.click("#send")
    b.answered()
    flows.grow(TOKENS, 32, back=True)
    b.wait("document.querySelector('.gauge-times').innerText.includes('×')", "the gauge")
    if not phone:
        b.js("document.querySelector('#scroll').scrollTop = 0")


def chain_shot(flows, theme, width, height):
    """The model of the repository within a long thought, with its pages."""
    b = flows.browser
    flows.begin_real("--preset", "chat")
    b.size(width, height)
    b.media(prefers_color_scheme=theme)
    for text in ("Hello!", "Good morning"):
        b.send(text)
        b.answered(120)
        b.click("#new")
    b.click("#pages-open")
    b.send(CHAIN.format(300))
    b.wait("document.querySelector('.thought-count')?.innerText", "it thinks", 60)
    b.click(".thought summary")
    count = "document.querySelector('.thought-count').innerText.replace(/\\D/g, '')"
    b.wait(f"Number({count}) > 2600", "a long thought", 300)


def take_shots(flows, folder):
    """Writes the four pictures, each below LIMIT; that of the chain only with the program."""
    folder.mkdir(parents=True, exist_ok=True)
    b = flows.browser
    shots = {"light": lambda: sample_shot(flows, "light", 1280, 960),
             "dark": lambda: sample_shot(flows, "dark", 1280, 960),
             "phone": lambda: sample_shot(flows, "light", 390, 844, phone=True)}
    if flows.program:
        shots["pages"] = lambda: chain_shot(flows, "light", 1280, 860)
    for name, shot in shots.items():
        b.reset()
        shot()
        b.js("document.activeElement.blur()")
        b.hover(b.one("#sidebar-open" if name == "phone" else ".brand .word"))
        time.sleep(0.5)
        file = folder / f"app-{name}.png"
        b.shot(file)
        size = file.stat().st_size
        print(f"{file}: {size} bytes", flush=True)
        if size > LIMIT:
            raise ValueError(f"{file} has {size} bytes, more than {LIMIT}")
    if flows.program:
        b.driver.get("about:blank")
        flows.process.terminate()
        flows.process.wait(20)

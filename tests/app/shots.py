"""The screenshots of docs/images, of a conversation near its budget with the sample answers of mock_server.py."""

import time

QUESTION = ("How many ways are there to climb 12 stairs, taking one, two or three at a time, if step 7 is broken? "
            "Show the same in code.")


def prepare_shot(flows, grow_to, others=True):
    b = flows.browser
    if others:
        for text in ("The longest river that flows north", "Sourdough at 24 °C, a plan", "Regex for dates, explained"):
            b.ask(text)
            b.click("#new")
    b.ask(QUESTION)
    for tokens in range(1150, grow_to, (grow_to - 1150) // 75):
        flows.grow(tokens, 32)
        time.sleep(0.12)
    flows.grow(grow_to, 16, back=True)


def take_shots(flows, folder):
    """Four pictures of a conversation near its budget, as small as they may be."""
    folder.mkdir(parents=True, exist_ok=True)
    b = flows.browser
    for name, theme, width, height, tokens in (("light", "light", 1280, 960, 5400), ("dark", "dark", 1280, 960, 5400),
                                               ("phone", "light", 390, 844, 5400), ("pages", "light", 1280, 860, 9000)):
        b.reset()
        flows.begin()
        flows.flag(story_delay=0.03)      # as fast as such a model is
        b.size(width, height, phone=name == "phone")
        b.media(prefers_color_scheme=theme)
        if name == "phone":
            b.driver.refresh()
            b.wait("document.body.classList.contains('ready')", "reloaded")
            b.type(QUESTION)
            b.click("#send")
            b.answered()
            flows.grow(tokens, 32, back=True)
        else:
            if name == "pages":
                b.click("#pages-open")
            prepare_shot(flows, tokens, others=True)
        b.js("document.activeElement.blur()")
        b.hover(b.one("#sidebar-open" if name == "phone" else ".brand .word"))
        if name in ("light", "dark"):
            b.js("document.querySelector('#scroll').scrollTop = 0")
        time.sleep(0.4)
        file = folder / f"app-{name}.png"
        b.shot(file)
        print(f"{file}: {shrink(file)} bytes", flush=True)


def shrink(file):
    """A palette of 256 colours, where Pillow is there; a page has few more."""
    try:
        from PIL import Image
    except ImportError:
        return file.stat().st_size
    with Image.open(file) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    return file.stat().st_size

"""What mock_server.py answers: texts that a page has to get right, and one that is shown in pictures."""

SCRIPT = """Here is what you asked for: <script>window.hacked = 1</script> and <img src=x onerror="window.hacked = 2">.

<script>window.hacked = 3</script>

A [link](javascript:window.hacked=4), a [link](data:text/html,<script>window.hacked=5</script>), an address:
https://example.org/a_(b)?q=<script>, and ![a picture](https://example.org/pixel.png).

```html
<script>window.hacked = 6</script>
```

| <b>head</b> | two |
|---|---|
| <i onclick="window.hacked=7">cell</i> | `<script>` |
"""

MARKDOWN = """# A heading

Some **bold**, *slanted*, ~~struck~~ and `code`, a [link](https://example.org/path "title"), and snake_case_names stay.

## Lists

1. one
2. two
   - inner *a*
   - inner b
3. three

- [x] done
- [ ] open

> A quote
> of two lines.

```python
def merge(a, b):
    # Two sorted lists become one.
    return sorted(a + b)  # "text"
```

| Left | Right |
|:-----|------:|
| a \\| b | 1 |

---

The end: 2 * 3 * 4 = 24 and https://example.org/x.
"""

RTL = "مرحبا بالعالم! هذا نص عربي.\n\nשלום עולם, זה טקסט בעברית.\n\nAnd English again. 👩‍👩‍👧‍👦 🏳️‍🌈 🇺🇦 é"

STORY_THOUGHT = """The user wants the number of ways to climb 12 stairs taking 1, 2 or 3 at a time, with step 7 broken.

Let f(n) be the number of ways to stand on step n. f(0) = 1, f(1) = 1, f(2) = 2, f(3) = 4.
f(4) = f(3) + f(2) + f(1) = 4 + 2 + 1 = 7.
f(5) = 7 + 4 + 2 = 13.
f(6) = 13 + 7 + 4 = 24.
f(7) = 0, since the step is broken.
f(8) = f(7) + f(6) + f(5) = 0 + 24 + 13 = 37.
f(9) = 37 + 0 + 24 = 61.
f(10) = 61 + 37 + 0 = 98.
f(11) = 98 + 61 + 37 = 196.
f(12) = 196 + 98 + 61 = 355.
""" + "Let me check this from the other side, since one slip would go through the whole chain. " * 20

STORY = """There are **355 ways**.

Let *f(n)* be the number of ways to stand on step *n*. One gets there from the three steps below, and the broken step \
counts as none, so the chain is short enough to write down:

| step | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |
|---|---|---|---|---|---|---|---|---|---|
| ways | 7 | 13 | 24 | 0 | 37 | 61 | 98 | 196 | 355 |

The same in code, for any stairs and any broken steps:

```python
def ways(stairs, broken=()):
    f = [1]                        # one way to stay on the ground
    for step in range(1, stairs + 1):
        f.append(0 if step in broken else sum(f[-3:]))
    return f[stairs]

print(ways(12, broken={7}))        # 355
```

Without the broken step there would be 927 ways, so it costs a little more than three fifths of them."""

"""Grid files with random damage: each is read, or refused with an InputError of one line, and nothing else happens."""

from __future__ import annotations

import itertools
import random
import re
import sys
import warnings
from pathlib import Path

from fuzz_cases import Case, attempt
from fuzz_mutations import BYTES

from ridgeformer.sweeps import read_grid

NAME = "grid.toml"

GOOD = (
    """noise = ["uniform(0,5)", "categorical(1,3)"]
families = ["gdpp", "diag", "full"]
layers = [1, 2, 3]
seeds = [0, 1]
""",
    """noise = ["fixed(1)"]
dim = [3]
context = [6]
heads = [1, 2]
sequences = 1000
[protocol]
effort = 0.2
""",
    """noise = ['expon(scale=2)', 1.5]
layers = [
  7,  # deep
]
[protocol]
name = "paper"
steps = 100
rate = 1e-3
""",
    """noise = ["categorical(1,3,weights=(0.25,0.75))"]
protocol = {name = "search", caution = 0, precision = "float64"}
""",
)
TOKENS = re.compile(r"[A-Za-z_]+|[0-9.]+|\s+|.", re.S)
VALUES = (
    *("[]", "{}", "''", "nan", "-inf", "true", "2020-01-01", "12:00:00", "1e400", "-1", "0", "3.0", "0x" + "f" * 5000),
    *("9" * 30, "9" * 5000, '"""', "[[1]]", "{a.b.c = 1}", "['x', 1]", '"fixed(1)"', '"\\u0000"', '"\\u001b[2J"'),
    *('"lognorm(s=1e9)"', '"zipf(1.0001)"', '"norm()"', '"rv_histogram(1)"', "'fixed(1e999)'", "'uniform(*x)'"),
)
NAMES = ("noise", "dim", "context", "families", "layers", "heads", "seeds", "protocol", "sequences", "a.b", '""')


def print_over(content: bytes, rng: random.Random) -> bytes:
    """A few bytes become others that can be printed."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(32, 127)
    return bytes(changed)


def swap_tokens(text: str, rng: random.Random) -> str:
    tokens = TOKENS.findall(text)
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[i], tokens[j] = tokens[j], tokens[i]
    return "".join(tokens)


def swap_types(text: str, rng: random.Random) -> str:
    """A value, or one in a list, becomes something else."""
    values = list(re.finditer(r"(?<== )[^\n]+|[0-9.]+|\"[^\"\n]*\"", text))
    chosen = rng.choice(values)
    return text[: chosen.start()] + rng.choice(VALUES) + text[chosen.end() :]


def nest(text: str, rng: random.Random) -> str:
    """A value becomes a deep one."""
    depth = rng.choice((1, 2, 10, 100, 400, 1000, 20_000))
    opening, closing = rng.choice((("[", "]"), ("{a=", "}"), ("{a=1,a", "}"), ("'x(", ")'"), ("[{a=", "}]")))
    inner = rng.choice(("", "1", "'diag'", "1.1"))
    value = rng.choice(list(re.finditer(r"(?<== )[^\n]+", text)))
    return f"{text[: value.start()]}{opening * depth}{inner}{closing * depth}{text[value.end() :]}"


def insert_numbers(text: str, rng: random.Random) -> str:
    """Huge, tiny and odd numbers in place of good ones."""

    def other(found: re.Match[str]) -> str:
        if rng.random() < 0.6:
            return found.group()
        huge = str(rng.getrandbits(rng.choice((8, 40, 63, 64, 400, 20_000)))) if rng.random() < 0.7 else "1e-320"
        return rng.choice(("", "-", "0x", "0.", "+")) + huge + rng.choice(("", "e300", ".5", "_0"))

    sys.set_int_max_str_digits(0)
    try:
        return re.sub(r"[0-9]+", other, text)
    finally:
        sys.set_int_max_str_digits(4300)


def lengthen(text: str, rng: random.Random) -> str:
    """Axes of so many values that their combinations could not be enumerated."""
    most = {"dim": 200, "context": 200, "layers": 200, "heads": 64, "seeds": 400}
    axes = rng.sample(sorted(most), rng.randint(1, 4))
    kept = [line for line in text.split("\n") if line.split(" ")[0] not in axes]
    added = [f"{axis} = {list(range(1, rng.randint(2, most[axis])))}" for axis in axes]
    return "\n".join([*added, *kept])


def change_noise(text: str, rng: random.Random) -> str:
    """Distributions of scipy's and others, with arguments that they may not take."""
    name = rng.choice(("fixed", "uniform", "categorical", "expon", "gamma", "lognorm", "poisson", "norm", "beta", "x"))
    numbers = [
        *["0", "1", "2.5", "-1", "1e12", "1e300", "1e999", "-0.0", "1e-320", "True", "None", "()", "'a'"],
        "9" * 400,
    ]
    names = ("", "", "loc=", "scale=", "s=", "weights=", "low=", "*", "**")
    arguments = [rng.choice(names) + rng.choice(numbers) for _ in range(rng.randint(0, 3))]
    return re.sub(r"noise = .*", lambda _: f'noise = ["{name}({",".join(arguments)})"]', text)


def change_keys(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), f"{rng.choice(NAMES)} = {rng.choice(VALUES)}")
    lines[rng.randrange(len(lines))] = rng.choice(lines)
    return "\n".join(lines)


TEXTS = (swap_tokens, swap_types, nest, insert_numbers, lengthen, change_keys, change_noise)


def make(rng: random.Random) -> Case:
    """One damaged grid: its text, or its bytes."""
    text, what = rng.choice(GOOD), rng.choice((*TEXTS, *TEXTS, print_over, print_over, *dict.fromkeys(BYTES)))
    content = what(text, rng).encode() if what in TEXTS else what(text.encode(), rng)
    return Case(what.__name__, {NAME: content}, None)


def judge(folder: Path, case: Case) -> str:
    """Read the grid and make some of its specs."""

    def read() -> str:
        for _ in itertools.islice(read_grid(folder / NAME).specs(), 200):
            pass
        return "accepted"

    warnings.simplefilter("ignore")  # scipy's, about parameters that it takes
    return attempt(read)

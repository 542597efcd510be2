"""Grid files with random damage: each is read, or refused with an InputError of one line, and nothing else happens."""

import itertools
import re
import sys
import warnings

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
VALUES = (
    *("[]", "{}", "''", "nan", "-inf", "true", "2020-01-01", "12:00:00", "1e400", "-1", "0", "3.0", "0x" + "f" * 5000),
    *("9" * 30, "9" * 5000, '"""', "[[1]]", "{a.b.c = 1}", "['x', 1]", '"fixed(1)"', '"\\u0000"', '"\\u001b[2J"'),
    *('"lognorm(s=1e9)"', '"zipf(1.0001)"', '"norm()"', '"rv_histogram(1)"', "'fixed(1e999)'", "'uniform(*x)'"),
)


def swap_types(text, rng):
    """A value, or one in a list, becomes something else."""
    values = list(re.finditer(r"(?<== )[^\n]+|[0-9.]+|\"[^\"\n]*\"", text))
    chosen = rng.choice(values)
    return text[: chosen.start()] + rng.choice(VALUES) + text[chosen.end() :]


def nest(text, rng):
    """A value becomes a deep one."""
    depth = rng.choice((1, 2, 10, 100, 400, 1000, 20_000))
    opening, closing = rng.choice((("[", "]"), ("{a=", "}"), ("{a=1,a", "}"), ("'x(", ")'"), ("[{a=", "}]")))
    inner = rng.choice(("", "1", "'diag'", "1.1"))
    value = rng.choice(list(re.finditer(r"(?<== )[^\n]+", text)))
    return f"{text[: value.start()]}{opening * depth}{inner}{closing * depth}{text[value.end() :]}"


def insert_numbers(text, rng):
    """Huge, tiny and odd numbers in place of good ones."""

    def other(found):
        if rng.random() < 0.6:
            return found.group()
        huge = str(rng.getrandbits(rng.choice((8, 40, 63, 64, 400, 20_000)))) if rng.random() < 0.7 else "1e-320"
        return rng.choice(("", "-", "0x", "0.", "+")) + huge + rng.choice(("", "e300", ".5", "_0"))

    sys.set_int_max_str_digits(0)
    try:
        return re.sub(r"[0-9]+", other, text)
    finally:
        sys.set_int_max_str_digits(4300)


def lengthen(text, rng):
    """Axes of so many values that their combinations could not be enumerated."""
    most = {"dim": 200, "context": 200, "layers": 200, "heads": 64, "seeds": 400}
    axes = rng.sample(sorted(most), rng.randint(1, 4))
    kept = [line for line in text.split("\n") if line.split(" ")[0] not in axes]
    added = [f"{axis} = {list(range(1, rng.randint(2, most[axis])))}" for axis in axes]
    return "\n".join([*added, *kept])


def change_noise(text, rng):
    """Distributions of scipy's and others, with arguments that they may not take."""
    name = rng.choice(("fixed", "uniform", "categorical", "expon", "gamma", "lognorm", "poisson", "norm", "beta", "x"))
    numbers = [
        *["0", "1", "2.5", "-1", "1e12", "1e300", "1e999", "-0.0", "1e-320", "True", "None", "()", "'a'"],
        "9" * 400,
    ]
    names = ("", "", "loc=", "scale=", "s=", "weights=", "low=", "*", "**")
    arguments = [rng.choice(names) + rng.choice(numbers) for _ in range(rng.randint(0, 3))]
    return re.sub(r"noise = .*", lambda _: f'noise = ["{name}({",".join(arguments)})"]', text)


TEXTS = (swap_types, nest, insert_numbers, lengthen, change_noise)


def make(rng):
    """One damaged grid: its text, or its bytes."""
    text, what = rng.choice(GOOD), rng.choice((*TEXTS, *TEXTS, *dict.fromkeys(BYTES)))
    content = what(text, rng).encode() if what in TEXTS else what(text.encode(), rng)
    return Case(what.__name__, {NAME: content}, None)


def judge(folder, case):
    """Read the grid and make some of its specs."""

    def read():
        for _ in itertools.islice(read_grid(folder / NAME).specs(), 200):
            pass
        return "accepted"

    warnings.simplefilter("ignore")  # scipy's, about parameters that it takes
    return attempt(read)

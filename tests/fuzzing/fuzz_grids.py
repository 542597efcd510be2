"""Grid files with random damage: each is read, or refused with an InputError of one line, and nothing else happens.

python tests/fuzzing/fuzz_grids.py 20000 0    # how many, and the seed
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from ridgeformer import InputError
from ridgeformer.sweeps import read_grid

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


def flip_bytes(text: str, rng: random.Random) -> bytes:
    content = bytearray(text.encode())
    for _ in range(rng.randint(1, 3)):
        content[rng.randrange(len(content))] = rng.randrange(256) if rng.random() < 0.3 else rng.randrange(32, 127)
    return bytes(content)


def swap_tokens(text: str, rng: random.Random) -> bytes:
    tokens = TOKENS.findall(text)
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[i], tokens[j] = tokens[j], tokens[i]
    return "".join(tokens).encode()


def truncate(text: str, rng: random.Random) -> bytes:
    content = text.encode()
    first, last = sorted(rng.choices(range(len(content) + 1), k=2))
    return content[:first] if rng.random() < 0.5 else content[:first] + content[last:]


def swap_types(text: str, rng: random.Random) -> bytes:
    """A value, or one in a list, becomes something else."""
    values = list(re.finditer(r"(?<== )[^\n]+|[0-9.]+|\"[^\"\n]*\"", text))
    chosen = rng.choice(values)
    return (text[: chosen.start()] + rng.choice(VALUES) + text[chosen.end() :]).encode()


def nest(text: str, rng: random.Random) -> bytes:
    """A value becomes a deep one."""
    depth = rng.choice((1, 2, 10, 100, 400, 1000, 20_000))
    opening, closing = rng.choice((("[", "]"), ("{a=", "}"), ("{a=1,a", "}"), ("'x(", ")'"), ("[{a=", "}]")))
    inner = rng.choice(("", "1", "'diag'", "1.1"))
    value = rng.choice(list(re.finditer(r"(?<== )[^\n]+", text)))
    return f"{text[: value.start()]}{opening * depth}{inner}{closing * depth}{text[value.end() :]}".encode()


def insert_numbers(text: str, rng: random.Random) -> bytes:
    """Huge, tiny and odd numbers in place of good ones."""

    def other(found: re.Match[str]) -> str:
        if rng.random() < 0.6:
            return found.group()
        huge = str(rng.getrandbits(rng.choice((8, 40, 63, 64, 400, 20_000)))) if rng.random() < 0.7 else "1e-320"
        return rng.choice(("", "-", "0x", "0.", "+")) + huge + rng.choice(("", "e300", ".5", "_0"))

    sys.set_int_max_str_digits(0)
    try:
        return re.sub(r"[0-9]+", other, text).encode()
    finally:
        sys.set_int_max_str_digits(4300)


def lengthen(text: str, rng: random.Random) -> bytes:
    """Axes of so many values that their combinations could not be enumerated."""
    most = {"dim": 200, "context": 200, "layers": 200, "heads": 64, "seeds": 400}
    axes = rng.sample(sorted(most), rng.randint(1, 4))
    kept = [line for line in text.split("\n") if line.split(" ")[0] not in axes]
    added = [f"{axis} = {list(range(1, rng.randint(2, most[axis])))}" for axis in axes]
    return "\n".join([*added, *kept]).encode()


def change_noise(text: str, rng: random.Random) -> bytes:
    """Distributions of scipy's and others, with arguments that they may not take."""
    name = rng.choice(("fixed", "uniform", "categorical", "expon", "gamma", "lognorm", "poisson", "norm", "beta", "x"))
    numbers = [
        *["0", "1", "2.5", "-1", "1e12", "1e300", "1e999", "-0.0", "1e-320", "True", "None", "()", "'a'"],
        "9" * 400,
    ]
    names = ("", "", "loc=", "scale=", "s=", "weights=", "low=", "*", "**")
    arguments = [rng.choice(names) + rng.choice(numbers) for _ in range(rng.randint(0, 3))]
    return re.sub(r"noise = .*", lambda _: f'noise = ["{name}({",".join(arguments)})"]', text).encode()


def change_keys(text: str, rng: random.Random) -> bytes:
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), f"{rng.choice(NAMES)} = {rng.choice(VALUES)}")
    lines[rng.randrange(len(lines))] = rng.choice(lines)
    return "\n".join(lines).encode()


MUTATIONS = (flip_bytes, swap_tokens, truncate, swap_types, nest, insert_numbers, lengthen, change_keys, change_noise)


def mutated(seed: int, number: int) -> tuple[str, bytes]:
    """The name of the damage and the content of one file, which depends on nothing else."""
    rng = random.Random(f"{seed}/{number}")
    mutate = rng.choice(MUTATIONS)
    return mutate.__name__, mutate(rng.choice(GOOD), rng)


def run(count: int, seed: int) -> Counter[str]:
    """Read `count` damaged grid files.

    Args:
        count: How many.
        seed: Of the damage. The same seed gives the same files.

    Returns:
        How many of each kind of damage were accepted and refused.

    Raises:
        AssertionError: A file raised something else than an InputError of one short line. Names the file.
    """
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, about parameters that it takes
        path = Path(folder, "grid.toml")
        for number in range(count):
            name, content = mutated(seed, number)
            path.write_bytes(content)
            try:
                outcome = _outcome(path)
            except Exception as error:
                where = f"fuzz_grids.mutated({seed}, {number}) gives {content[:300]!r}"
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            outcomes[f"{name} {outcome}"] += 1
    return outcomes


def _outcome(path: Path) -> str:
    try:
        for _ in itertools.islice(read_grid(path).specs(), 200):
            pass
        return "accepted"
    except InputError as error:
        if len(str(error)) > 1000 or "\n" in str(error):
            raise ValueError("the message is not one short line") from error
        return "refused"


if __name__ == "__main__":
    for outcome, times in sorted(run(int(sys.argv[1]), int(sys.argv[2])).items()):
        print(f"{times:7} {outcome}")

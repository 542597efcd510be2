"""A stranger's runs and models on a pseudo-terminal: nothing but text reaches the screen, and little memory is used.

Texts of a run (status, message, versions, names of folders) hold escape sequences, line breaks and marks that turn the
direction of writing; model files of some kilobytes stand for matrices of any size. Every command runs in a process of
its own, whose output is a terminal. Its text must be printable, line by line, and its memory may grow by 200 MB.
"""

import json
import os
import pty
import re

import numpy as np
from fuzz_cases import write
from fuzz_records import MODEL, RECORD, sound

from ridgeformer import Diag, Full, GDpp, cli
from ridgeformer.files import pack
from ridgeformer.models.file import FORMAT, VERSION
from ridgeformer.training.store import checksum

MOST = 200e6  # bytes
PIECES = ("\x1b[2J", "\x1b]0;t\x07", "\x9b31m", *"\r\n\t\x00\x7f\u202e\u2028aé", "FAKE", "%s")
TEXTS = ("status", "message", "made_with", "actual", "history", "spec")
PRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and cursors of the progress line, which are our own


def hostile(rng):
    """A text with some of the pieces."""
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6)))


def spoiled(record, rng):
    """A record with hostile texts and a fitting checksum."""
    for name in rng.sample(TEXTS, rng.randint(1, 3)):
        if name == "made_with":
            record[name] = {hostile(rng): hostile(rng)}
        elif name == "history":
            record[name] = [[hostile(rng), *row[1:]] for row in record["history"]]
        elif name == "spec":
            key = rng.choice(("noise", "family", "features", "problem"))
            record[name] = {**record["spec"], key: hostile(rng)}
        else:
            record[name] = hostile(rng)
    record.pop("checksum", None)
    return {**record, "checksum": checksum(record)}


def huge(rng):
    """A small model file that stands for large matrices."""
    layers, heads, dim = rng.choice((1, 6, 500)), rng.choice((1, 2, 64)), rng.choice((2, 512, 4096, 10**6, 10**12))
    name = rng.choice(("diag", "gdpp", "full", "looped(diag,4000)", "channels(1,3)"))
    kinds = {"gdpp": lambda: GDpp(np.zeros((layers, heads, 2)), np.zeros((layers, heads)))}
    kinds["full"] = lambda: Full(*np.zeros((2, 1, 1, 3, 3)))
    family = kinds.get(name, lambda: Diag(*np.zeros((2, layers, heads, 2))))()
    spec = {"family": name, "dim": dim, "layers": rng.choice((layers, 10**9)), "heads": heads}
    spec |= rng.choice(({}, {"layout": {"attention": "sum", "coordinate": "none", "scratch": 10**6}}))
    return model_file(family.arrays, spec)


def model_file(arrays, spec):
    """A model file with this spec, whatever it says."""
    return pack(arrays, {"format": FORMAT, "version": str(VERSION), "spec": json.dumps(spec)})


def on_terminal(arguments):
    """The text that a command prints to a terminal, its exit code, and how much memory it took in bytes."""
    reader, writer = os.pipe()
    child, terminal = pty.fork()
    if not child:
        code = 70
        try:
            before = _memory("VmRSS")
            try:
                cli.main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
            os.write(writer, f"{_memory('VmHWM') - before}".encode())
        finally:
            os._exit(code)
    os.close(writer)
    pieces = []
    try:
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    except OSError:  # the other side is closed
        pass
    _, status = os.waitpid(child, 0)
    grown = os.read(reader, 100)
    os.close(terminal)
    os.close(reader)
    return b"".join(pieces).decode(errors="replace"), os.waitstatus_to_exitcode(status), float(grown or "inf")


def _memory(name):
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith(name)).split()[1])


def judge(rng, scratch):
    """One command on hostile files."""
    truth, folder = rng.choice(sound()), scratch / rng.choice(("run", "a\x1b[2J\nFAKE"))
    what = rng.choice(("texts", "sizes"))
    if what == "texts":
        changed = {RECORD: json.dumps(spoiled(json.loads(truth.files[RECORD]), rng)).encode()}
    else:
        changed = {MODEL: huge(rng)}
    write(folder, truth.files | changed)
    command = rng.choice(
        (["runs", str(folder)], ["runs", str(folder.parent)], ["eval", str(folder), "--sequences", "50"],
         ["explain", str(folder), "--sequences", "100"], ["export", str(folder), "--to", "latex"],
         ["eval", str(folder / MODEL), "--noise", "1", "--context", "4", "--sequences", "50"],
         ["models", hostile(rng).replace("\x00", "")], ["train", "--noise", hostile(rng).replace("\x00", "")])
    )  # fmt: skip
    text, code, grown = on_terminal(command)
    lines = re.split(r"\r?\n", PRINTABLE.sub("", text) if code == 0 else text)
    assert code in (0, 1, 2), f"{command} ends with {code}: {text[-2000:]!r}"
    assert "Traceback" not in text, f"{command}: {text[-2000:]!r}"
    assert all(line.replace("\r", "").isprintable() for line in lines), f"{command} prints {text!r}"
    assert not any(line.startswith("FAKE") for line in lines), f"{command} prints a line of its own: {text!r}"
    assert grown < MOST, f"{command} took {grown / 1e6:.0f} MB"
    return f"{what} with {command[0]}: {'printed' if code == 0 else 'refused'}"

"""Random damage to the content of a file: to its bytes, to JSON, to safetensors files.

Every function takes the sound content and a random generator and gives damaged content, which depends on nothing else.
"""

import json
import math
import struct

ODD = (
    *("null", "true", "false", "0", "1", "-1", "2", "3", "0.1", "-0.0", "1e999", "-1e999", "NaN", "Infinity", "1e-320"),
    *('""', '"x"', '"0"', '"2"', '"full"', '"fixed(1)"', '"NaN"', '"\\ud800"', '"\\u0000\\u001b[2J"', '"\\u00b2"'),
    *("[]", "{}", "[[]]", "[null]", '[1, "a", {}]', '{"a": 1, "a": 2}', '{"": {}}', "9" * 400, "-" + "9" * 4000),
    *("9" * 5000, '"' + "9" * 5000 + '"', str(2**63), str(2**64), "1" + "0" * 30, "0x10", "01", "'x'", "undefined"),
)
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "U64", "I32", "I8", "U8", "BOOL", "C64", "F8_E4M3", "F4", "f64", "X", "")
NAMES = ("p", "q", "P", "Q", "omega", "self", "x", "", "0/x", "99/x", "00/p", "\u0663/x")
NUMBERS = (0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1e308, -1e-3)


def flip_bits(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 8, 64))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(content, rng):
    first = rng.randrange(len(content))
    last = min(len(content), first + rng.choice((1, 1, 2, 4, 8, rng.randint(1, 256))))
    filling = rng.choice((b"\0", b"\xff", b" ", b"9", b'"', b"{", None))
    new = rng.randbytes(last - first) if filling is None else filling * (last - first)
    return content[:first] + new + content[last:]


def splice(content, rng):
    """The rest is lost; or a range is lost, comes again and again, changes places or is something else."""
    a, b, c, d = sorted(rng.choices(range(len(content) + 1), k=4))
    last = rng.choice((a, min(a + 1, len(content)), b))
    again, noise = content[a:last] * rng.choice((2, 50)), rng.randbytes(rng.randint(1, 16))
    others = b"", b"", again, noise, b"\0" * rng.randint(1, 4096)
    moved = content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]
    return rng.choice((content[:a], content[:-1], b"", moved, *(content[:a] + new + content[last:] for new in others)))


def zero_blocks(content, rng):
    """Whole blocks are lost, as after a power cut."""
    size = rng.choice((16, 64, 512))
    first = rng.randrange(len(content)) // size * size
    last = min(len(content), first + size * rng.randint(1, 4))
    return content[:first] + b"\0" * (last - first) + content[last:]


BYTES = (flip_bits, flip_bits, overwrite, splice, splice, splice, zero_blocks)


class _Texts:
    """Pieces of text that no JSON encoder would write, under names that are replaced once the rest is encoded."""

    def __init__(self):
        self.known = {}

    def name(self, text):
        name = f"@{len(self.known)}@"
        self.known[name] = text
        return name

    def encode(self, document, indent=None):
        text = json.dumps(document, indent=indent)
        for name, piece in self.known.items():
            text = text.replace(f'"{name}"', piece)
        return text.encode()


def edit_json(content, rng):
    """Values and keys become others; keys appear twice, vanish, or change places."""
    document, texts = json.loads(content), _Texts()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _edit(document, rng, texts)
    return texts.encode(document, 2 if b"\n" in content else None)


def reformat_json(content, rng):
    """The same document in another form."""
    document = json.loads(content)
    plain = json.dumps(document)
    indented = json.dumps(document, indent=rng.choice((None, 0, 1, 4)))
    other = json.dumps(document, sort_keys=True), json.dumps(document, separators=(",", ":"))
    return rng.choice((indented, *other, f"\n \t{plain}\r\n", f"\ufeff{plain}")).encode()


def nest_json(content, rng):
    """A value becomes a deep one: some are just below what Python can read, some far above."""
    document, texts = json.loads(content), _Texts()
    depth = rng.choice((2, 50, 300, rng.randint(880, 1000), rng.randint(940, 1000), 1500, 100_000))
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ("[", ""), ('[{"a":', "}]")))
    box, key = rng.choice(_places(document) or [({}, "")])
    box[key] = texts.name(opening * depth + "1" + closing * depth)
    return texts.encode(document)


def _edit(document, rng, texts):
    places = _places(document)
    if not places:
        return
    box, key = rng.choice(places)
    what = rng.choice(("value", "value", "nudge", "nudge", "remove", "rename", "twice", "exchange"))
    if what == "value":
        box[key] = texts.name(rng.choice(ODD))
    elif what == "nudge":
        box[key] = _nudged(box[key], rng)
    elif what == "exchange":
        other, name = rng.choice(places)
        if not _inside(box[key], other) and not _inside(other[name], box):
            box[key], other[name] = other[name], box[key]
    elif what == "remove":
        del box[key]
    elif isinstance(box, dict) and what == "rename":
        box[rng.choice((*box, "", "x", key + "s", key.upper()))] = box.pop(key)
    elif isinstance(box, dict):
        box[texts.name(json.dumps(key))] = rng.choice((box[key], texts.name(rng.choice(ODD))))
    else:
        box.append(box[key])


def _nudged(value, rng):
    """Nearly the same value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, float(value), str(value), value + 1e-9))
    if isinstance(value, float):
        return rng.choice((math.nextafter(value, math.inf), -value, 2 * value, str(value), round(value, 6)))
    if isinstance(value, str):
        place = rng.randrange(len(value) + 1)
        return value[:place] + rng.choice(("", " ", "0", "a", "\n", '"', "\\")) + value[place + rng.randint(0, 1) :]
    return rng.choice(([value], {"x": value}, str(value), None))


def _places(document):
    """Everything in a document, as what holds it and where."""
    found = []
    waiting = [document]
    while waiting:
        box = waiting.pop()
        keys = box if isinstance(box, dict) else range(len(box)) if isinstance(box, list) else ()
        found += [(box, key) for key in keys]
        waiting += [box[key] for key in keys]
    return found


def _inside(outer, box):
    return outer is box or any(outer_box[key] is box for outer_box, key in _places(outer))


JSON = (*BYTES, *[edit_json] * 6, nest_json, reformat_json)


def split(content):
    """The header and the data of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _joined(header, data):
    return len(header).to_bytes(8, "little") + header + data


def change_length(content, rng):
    """The header is said to be of another length."""
    size = int.from_bytes(content[:8], "little")
    other = rng.choice((0, 1, 2, size - 1, size + 1, size + 8, len(content), 2**24, 2**31, 2**62, 2**63, 2**64 - 1))
    return other.to_bytes(8, "little") + content[8:]


def change_tensors(content, rng):
    """What the header says about one tensor becomes something else."""
    header, data = split(content)
    texts = _Texts()
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return flip_bits(content, rng)
    entry, other, old = header[rng.choice(names)], header[rng.choice(names)], rng.choice(names)
    begin, end = entry["data_offsets"]
    odd = ([end, begin], [begin + 8, end], [begin, end + 8], [begin - 8, end - 8], [0, len(data)], [0, 0], [-1, 5])
    odd = (*odd, other["data_offsets"], [begin, 2**64], [begin], [begin, float(end)])
    what = rng.choice(("dtype", "shape", "data_offsets", "name", "exchange", "order", "second"))
    if what in entry:
        others = {
            "dtype": rng.choice(DTYPES),
            "shape": _other_shape(entry["shape"], rng),
            "data_offsets": rng.choice(odd),
        }
        entry[what] = others[what]
    elif what == "name":
        header[rng.choice(NAMES)] = header[old] if rng.random() < 0.3 else header.pop(old)
    elif what == "exchange":
        new = rng.choice(names)
        header[old], header[new] = header[new], header[old]
    elif what == "order":
        header = dict(rng.sample(sorted(header.items()), len(header)))
    else:
        header[texts.name(json.dumps(old))] = other
    return _joined(texts.encode(header), data)


def _other_shape(shape, rng):
    size = math.prod(shape)
    same = (shape[::-1], [size], [1, *shape], [*shape, 1], [size // 2, 2], [1] * 40 + shape, [1] * 5000 + [size])
    other = ([*shape, 0], [0], [], [-1, size], [2**63, 2], [2**32, 2**32], [float(size)], shape[:-1], [str(size)])
    return rng.choice(rng.choice((same, other)))


def change_metadata(content, rng):
    """A text of the metadata is damaged; where it holds JSON, as JSON too."""
    header, data = split(content)
    metadata, texts = header["__metadata__"], _Texts()
    key = rng.choice(sorted(metadata))
    text, what = metadata[key], rng.choice(("inside", "inside", "inside", "bytes", "remove", "rename", "value", "all"))
    if what == "inside" and text.startswith("{"):
        metadata[key] = rng.choice((edit_json, edit_json, nest_json, reformat_json))(text.encode(), rng).decode()
    elif what in ("inside", "bytes"):
        metadata[key] = rng.choice(BYTES)(text.encode(), rng).decode("utf-8", "surrogateescape")
    elif what == "remove":
        del metadata[key]
    elif what == "rename":
        metadata[rng.choice(sorted(metadata))] = metadata.pop(key)
    elif what == "value":
        metadata[key] = texts.name(rng.choice(ODD))
    else:
        header["__metadata__"] = rng.choice((None, [], {}, "x", {"format": "pt"}, {"a": 1}, {"checksum": ""}))
    return _joined(texts.encode(header), data)


def change_header(content, rng):
    """The header is damaged as any JSON, and its length corrected."""
    size = int.from_bytes(content[:8], "little")
    return _joined(rng.choice(JSON)(content[8 : 8 + size], rng), content[8 + size :])


def change_numbers(content, rng):
    """One number of the data becomes another, by much or by its last bit."""
    header, data = split(content)
    numbers = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(max(1, len(data) // 8)) * 8
        (old,) = struct.unpack_from("<d", numbers.ljust(place + 8, b"\0"), place)
        new = rng.choice((-old, math.nextafter(old, math.inf), *NUMBERS))
        numbers[place : place + 8] = struct.pack("<d", new)
    return _joined(json.dumps(header).encode(), bytes(numbers))


TENSORS = (
    *BYTES,
    *(change_length, change_tensors, change_tensors, change_metadata, change_metadata, change_header, change_numbers),
)


def damaged(content, rng, mutations):
    """The name of the damage and the damaged content. One case in five has damage to its bytes on top of it."""
    mutate = rng.choice(mutations)
    found = mutate(content, rng)
    if found and rng.random() < 0.2:
        found = rng.choice(BYTES)(found, rng)
    return mutate.__name__, found

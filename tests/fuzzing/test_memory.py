"""Small hostile files and texts: reading them takes less than 200 MB, whatever they stand for."""

import json
import subprocess
import sys

import pytest
from fuzz_terminal import MOST, model_file

from ridgeformer import Diag, LinearTransformer
from ridgeformer.models.file import fingerprint
from ridgeformer.training import store as stored

HIGHEST = """
import sys
from ridgeformer import InputError, load, Training
from ridgeformer.problems.features import Features
try:
    {call}
    end = "read"
except InputError as error:
    end = "refused"
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(end, 1024 * int(peak.split()[1]))
"""


def peak(call):
    """How reading ends, and the most memory that the process had; exec sets VmHWM to 0, unlike ru_maxrss."""
    done = subprocess.run(
        [sys.executable, "-c", HIGHEST.format(call=call)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    end, most = done.stdout.split()
    return end, float(most)


def hostile_model(path, layers, dim):
    """A file of some kilobytes that stands for large matrices."""
    arrays = Diag([[[0.0, 0.0]]] * layers, [[[0.0, 0.0]]] * layers).arrays
    spec = {"family": "diag", "dim": dim, "layers": layers, "heads": 1}
    path.write_bytes(model_file(arrays, spec))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
def test_small_files_and_texts_cannot_ask_for_much_memory(tmp_path):
    hostile_model(tmp_path / "model.safetensors", 2000, 4096)
    cases = {f"load({str(tmp_path / 'model.safetensors')!r})": "refused"}
    run = tmp_path / "run"
    run.mkdir()
    hostile_model(run / "model.safetensors", 6, 4096)
    small = LinearTransformer(Diag([[[0.0, 0.0]]], [[[0.0, 0.0]]]), 2)
    record = {"format": stored.FORMAT, "version": stored.VERSION, "model": fingerprint(small), "status": "converged"}
    record |= {"spec": {"family": "diag", "dim": 4096, "layers": 6}}
    (run / "record.json").write_text(json.dumps(record | {"checksum": stored.checksum(record)}))
    cases[f"Training.load({str(run)!r})"] = "refused"
    for number, inside in enumerate(("{}," * 4_000_000, "1.5," * 3_000_000, "[[1],2]," * 1_000_000)):
        large = tmp_path / f"large{number}"
        large.mkdir()
        (large / "record.json").write_text(f'{{"a": [{inside}0]}}')
        cases[f"Training.load({str(large)!r})"] = "refused"
    cases['Features.of("spectrum([" + "1," * 2_500_000 + "1])")'] = "refused"
    cases['Features.of("f(" * 1_000_000)'] = "refused"
    for call, end in cases.items():
        found, most = peak(call)
        assert (found, most < MOST) == (end, True), (call, most)

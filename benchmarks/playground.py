"""`python -m benchmarks.playground`: how fast the playground is in Chromium, as a table in Markdown; about two minutes.

An update is what a moved slider costs: losses after every layer of a seven-layer Diag model on 2,000 contexts with
d = 10. A training step draws 2,048 sequences and computes loss and gradient of the same model. The last rows train four
layers of Diag on uniform(0,5) with the quasi-Newton search, the default of the page: until its loss is first below 1.8
and 1.6 times the floor, and to its end; ratios are those of 16,384 fresh sequences. Two workers share a training
step, so that with two free cores it takes little more than half of its CPU time; one worker computes updates and
searches. On a busy machine only the CPU time of the workers means anything; neighbours slow that down too, so that the
fastest of nine windows of 50 steps is given beside the median. Seeds of the searches may be given, as in
`python -m benchmarks.playground 1 2`; 0 leaves the searches out.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ridgeformer import load
from ridgeformer.playground import write_page

PREPARE = (
    """({ omega }) => playground.engine.ask("losses", { d: 10, n: 20, noise: "uniform(0,5)", omega, size: 2000 })"""
)
UPDATE = """async ({ omega }) => {
    const given = { d: 10, n: 20, noise: "uniform(0,5)", omega, size: 2000 };
    const times = [];
    for (let i = 0; i < 20; i += 1) {
        const began = performance.now();
        await playground.engine.ask("losses", given);
        times.push(performance.now() - began);
    }
    return times;
}"""
PROBLEM = (
    """({ d: 10, n: 20, noise: "uniform(0,5)", family: "diag", layers: 7, seed: 1, optimiser: "adam", rate: 0.02 })"""
)
TRAIN = f"() => playground.engine.ask('train', {PROBLEM})"
STEPS = """async ({ count }) => {
    const engine = playground.engine;
    let [first, last] = [null, null];
    const done = new Promise((resolve) => {
        engine.onReport = (report) => {
            first ??= report;
            last = report;
            if (last.steps - first.steps >= count) resolve();
        };
    });
    await engine.ask("run", { running: true });
    await done;
    await engine.ask("run", { running: false });
    return last;
}"""
BEGIN = """async ({ seed }) => {
    const problem = { d: 10, n: 20, noise: "uniform(0,5)" };
    const { floor } = await playground.engine.ask("losses", { ...problem, omega: [[0, 0, 0, 0]], size: 16384 });
    await playground.engine.ask("train", { ...problem, family: "diag", layers: 4, seed, optimiser: "quasi-newton" });
    return floor;
}"""
REACH = """async ({ loss: goal }) => {
    const engine = playground.engine;
    const began = performance.now();
    const reached = new Promise((resolve) => {
        engine.onReport = ({ curve, omega, done }) => {
            const last = curve.at(-1);
            if (done || (last?.depth === 4 && last.loss < goal)) resolve(omega);
        };
    });
    await engine.ask("run", { running: true });
    const omega = await reached;
    await engine.ask("run", { running: false });
    return { omega, seconds: (performance.now() - began) / 1000 };
}"""
FRESH = """async ({ omega }) => {
    const problem = { d: 10, n: 20, noise: "uniform(0,5)" };
    const { loss, floor, exploded } = await playground.engine.ask("losses", { ...problem, omega, size: 16384 });
    return { ratio: loss / floor, exploded };
}"""


class Clock:
    """The CPU time that the workers of a browser have used, in seconds, read from /proc (Linux)."""

    def __init__(self, browser: Any) -> None:
        self.session = browser.new_browser_cdp_session()

    def read(self) -> float:
        """Return the seconds since the workers began."""
        ticks = 0
        for process in self.session.send("SystemInfo.getProcessInfo")["processInfo"]:
            for thread in Path(f"/proc/{process['id']}/task").glob("*"):
                if (thread / "comm").read_text().startswith("DedicatedWorker"):
                    fields = (thread / "stat").read_text().rsplit(")", 1)[1].split()
                    ticks += int(fields[11]) + int(fields[12])  # in user mode and in the kernel
        return ticks / os.sysconf("SC_CLK_TCK")


def search(tab: Any, clock: Clock, seed: int) -> None:
    """Print what a search reaches, and when."""
    floor = tab.evaluate(BEGIN, {"seed": seed})
    wall = cpu = 0.0
    for level, name in ((1.8, "first below 1.8 x"), (1.6, "first below 1.6 x"), (0.0, "end")):
        before = clock.read()
        found = tab.evaluate(REACH, {"loss": level * floor})
        wall, cpu = wall + found["seconds"], cpu + clock.read() - before
        fresh = tab.evaluate(FRESH, {"omega": found["omega"]})
        measured = f"{fresh['ratio']:.2f} x the floor, {fresh['exploded']} of 16,384 exploded"
        required = "20 s" if level == 1.8 else ""
        print(f"| search, seed {seed}, {name}: {measured} | {wall:.1f} s | {cpu:.1f} s | {required} |", flush=True)


def main(seeds: Sequence[int] = (1, 2, 3)) -> None:
    """Print the table.

    Args:
        seeds: The seeds of the searches.
    """
    from playwright.sync_api import sync_playwright

    omega = load("zoo:diag/7/uniform(0,5)").kernel.omega.reshape(-1, 4).tolist()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = write_page(Path(folder) / "playground.html")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.goto(f"{page.as_uri()}#view=chapters")
        tab.wait_for_selector("html[data-ready]")
        clock = Clock(browser)
        print("| measurement | on the clock | CPU time | required |\n|---|---|---|---|")
        print(f"| size of the page | {page.stat().st_size / 1e6:.2f} MB | | 3 MB |")
        tab.evaluate(PREPARE, {"omega": omega})  # draws the contexts and computes the floor
        before = clock.read()
        times = sorted(tab.evaluate(UPDATE, {"omega": omega}))
        cpu = 1000 * (clock.read() - before) / len(times)
        print(
            f"| update of 2,000 contexts, median | {times[len(times) // 2]:.1f} ms | {cpu:.1f} ms | 50 ms |", flush=True
        )
        tab.evaluate(TRAIN)
        windows = []
        last = tab.evaluate(STEPS, {"count": 50})  # the browser compiles the core better while it runs
        for _ in range(9):
            before, now = clock.read(), tab.evaluate(STEPS, {"count": 50})
            taken = now["steps"] - last["steps"]
            windows.append((taken / (now["seconds"] - last["seconds"]), taken / (clock.read() - before)))
            last = now
        for name, at in (("median of nine windows", len(windows) // 2), ("fastest", -1)):
            speed, cpu = (sorted(column)[at] for column in zip(*windows, strict=True))
            print(
                f"| training steps of 2,048 sequences, per second, {name} | {speed:.0f} | {cpu:.0f} | 100 |", flush=True
            )
        for seed in seeds:
            search(tab, clock, seed)
        browser.close()


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:] if seed != "0"] if sys.argv[1:] else (1, 2, 3))

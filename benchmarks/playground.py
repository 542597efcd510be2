"""`python -m benchmarks.playground`: how fast the playground is in Chromium, as a table in Markdown; about a minute.

An update is what a moved slider costs: losses after every layer of a seven-layer Diag model on 2,000 contexts with
d = 10. A training step draws 2,048 sequences and computes loss and gradient of the same model. The last rows train four
layers of Diag on uniform(0,5) with the quasi-Newton search, the default of the page.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ridgeformer import load
from ridgeformer.playground import write_page

UPDATE = """async ({ omega }) => {
    const given = { d: 10, n: 20, noise: "uniform(0,5)", omega, size: 2000 };
    await playground.engine.ask("losses", given);  // the first call draws the contexts and computes the floor
    const times = [];
    for (let i = 0; i < 20; i += 1) {
        const began = performance.now();
        await playground.engine.ask("losses", given);
        times.push(performance.now() - began);
    }
    return times;
}"""
STEPS = """async ({ omega }) => {
    const engine = playground.engine;
    const problem = { d: 10, n: 20, noise: "uniform(0,5)" };
    await engine.ask("train", { ...problem, family: "diag", layers: 7, seed: 1, optimiser: "adam", rate: 0.02 });
    const speeds = [];
    let last = { steps: 0, seconds: 0 };
    const done = new Promise((resolve) => {
        engine.onReport = ({ steps, seconds }) => {
            if (seconds - last.seconds > 0.5) {
                speeds.push((steps - last.steps) / (seconds - last.seconds));
                last = { steps, seconds };
            }
            if (speeds.length === 8) resolve();
        };
    });
    await engine.ask("run", { running: true });
    await done;
    await engine.ask("run", { running: false });
    return speeds;
}"""
SEARCH = """async ({ seed }) => {
    const engine = playground.engine;
    const problem = { d: 10, n: 20, noise: "uniform(0,5)" };
    const { floor } = await engine.ask("losses", { ...problem, omega: [[0, 0, 0, 0]], size: 16384 });
    await engine.ask("train", { ...problem, family: "diag", layers: 4, seed, optimiser: "quasi-newton" });
    const began = performance.now();
    const first = {};
    const done = new Promise((resolve) => {
        engine.onReport = (report) => {
            for (const { loss, depth } of report.curve)
                for (const level of [1.8, 1.6])
                    if (depth === 4 && loss < level * floor) first[level] ??= (performance.now() - began) / 1000;
            if (report.done) resolve(report.omega);
        };
    });
    await engine.ask("run", { running: true });
    const omega = await done;
    const seconds = (performance.now() - began) / 1000;
    const { loss, exploded } = await engine.ask("losses", { ...problem, omega, size: 16384 });
    return { ratio: loss / floor, seconds, first, exploded };
}"""


def main() -> None:
    """Print the table."""
    from playwright.sync_api import sync_playwright

    omega = load("zoo:diag/7/uniform(0,5)").kernel.omega.reshape(-1, 4).tolist()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = write_page(Path(folder) / "playground.html")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.goto(f"{page.as_uri()}#view=chapters")
        tab.wait_for_selector("html[data-ready]")
        print("| measurement | least or best | median | required |\n|---|---|---|---|")
        print(f"| size of the page, MB | {page.stat().st_size / 1e6:.2f} | | 3 |")
        times = sorted(tab.evaluate(UPDATE, {"omega": omega}))
        print(f"| update of 2,000 contexts, ms | {times[0]:.1f} | {times[len(times) // 2]:.1f} | 50 |", flush=True)
        speeds = sorted(tab.evaluate(STEPS, {"omega": omega}))
        print(f"| training steps per second | {speeds[-1]:.0f} | {speeds[len(speeds) // 2]:.0f} | 100 |", flush=True)
        for seed in (1, 2, 3):
            found = tab.evaluate(SEARCH, {"seed": seed})
            reached = ", ".join(f"{level} x after {seconds:.1f} s" for level, seconds in found["first"].items())
            end = f"{found['ratio']:.2f} x after {found['seconds']:.1f} s, {found['exploded']} of 16,384 exploded"
            print(f"| search, seed {seed} | {reached} | {end} | 1.8 x in 20 s |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()

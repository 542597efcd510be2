// The view "Train": the loss falls towards the floor, the omegas move, and the result can be explored.

import * as charts from "./charts.js";
import { problemControls } from "./controls.js";
import { card } from "./explore.js";
import { h, say, short } from "./dom.js";
import { parseNoise } from "./noise.js";
import { LIMITS } from "./state.js";
import { units } from "./training.js";

const KEPT = 20000; // points of the curve
const READY = "Ready. Start, and watch the loss fall towards the floor; pause whenever you like and explore that model.";

export function train(main, app) {
  const { store, background } = app;
  const trainer = app.start(); // a worker of its own, so that pictures stay quick
  const problem = problemControls(store);
  const set = (part) => store.change({ train: { ...store.state.train, ...part } });
  const field = (id, label, control) => h("div", { class: "field" }, h("label", { for: id }, label), control);
  const choose = (id, options, name) => h("select", { id, onchange: (event) => set({ [name]: event.target.value }) }, options.map(([value, text]) => h("option", { value }, text)));
  const family = choose("train-family", [["diag", "Diag: four omegas per layer"], ["gdpp", "GD++: xx and yx only"]], "family");
  const optimiser = choose("optimiser", [["quasi-newton", "quasi-Newton, several starts"], ["adam", "Adam"], ["descent", "gradient descent"]], "optimiser");
  const number = (id, name, min, max, step) => h("input", { id, type: "number", min, max, step, onchange: (event) => event.target.validity.valid && set({ [name]: event.target.valueAsNumber }) });
  const layers = number("train-layers", "layers", 1, LIMITS.layers, 1);
  const rate = number("rate", "rate", 0.0001, 10, "any");
  const seed = number("train-seed", "seed", 0, 1000000, 1);
  const start = h("button", { class: "main", type: "button", onclick: () => (running ? pause() : begin()) }, "Start");
  const step = h("button", { type: "button", onclick: () => once() }, "Step");
  const reset = h("button", { type: "button", onclick: () => clear() }, "Reset");
  const explore = h("button", { type: "button", disabled: true, onclick: () => take() }, "Explore this model");
  const curveCard = card("training-curve", "Loss", "On the sequences that training uses. The dashed line is the floor: no predictor can be better on average. Each thin line is one descent, the broad one is the best so far.", true);
  const omegaCard = card("training-omegas", "The omegas", "Each in its natural unit: 1 means that the layer changes a token by about itself.");
  const profileCard = card("training-profile", "Loss by noise level", "Of the model as it is now, beside classical methods. The band is the noise of the problem.");
  const status = h("p", { class: "status", id: "training-status" }, READY);
  const numbers = h("dl", { class: "headline" });
  const aside = h(
    "aside", { class: "panel", "aria-label": "controls" },
    h("fieldset", {}, h("legend", {}, "Training"), field("train-family", "family", family), field("train-layers", "layers", layers), field("optimiser", "optimiser", optimiser), field("rate", "rate (Adam, descent)", rate), field("train-seed", "seed", seed)),
    problem.element,
  );
  main.replaceChildren(h("h1", { class: "hidden" }, "Train"), h("div", { class: "work" }, aside, h("div", { class: "pictures" }, h("div", { class: "buttons" }, start, step, reset, explore), numbers, status, curveCard.element, omegaCard.element, profileCard.element)));

  let running = false;
  let begun = null;
  let curve = [];
  let latest = null;
  let best = null;
  let floor = NaN;
  let newest = null;
  let drawing = null; // the timer of the next drawing
  let pauseBetween = 60; // milliseconds

  const options = () => ({ ...store.state.train, d: store.state.d, n: store.state.n, noise: store.state.noise });
  const prepare = async () => {
    await trainer.ready;
    const now = JSON.stringify(options());
    if (begun === now) return;
    begun = now;
    [curve, latest, best] = [[], null, null];
    await trainer.ask("train", options());
  };
  const begin = async () => {
    running = true;
    start.textContent = "Pause";
    await prepare();
    await trainer.ask("run", { running: true });
  };
  const pause = async () => {
    running = false;
    start.textContent = "Go on";
    await trainer.ask("run", { running: false });
    if (latest) settle();
  };
  const once = async () => {
    if (running) await pause();
    await prepare();
    await trainer.ask("step", {});
  };
  const clear = async () => {
    if (running) await pause();
    begun = null;
    [curve, latest, best] = [[], null, null];
    start.textContent = "Start";
    status.textContent = READY;
    numbers.replaceChildren();
    explore.disabled = true;
    await update(store.state);
    charts.omegas(omegaCard.frame, [[0, 0, 0, 0]], [1, 1, 1, 1]);
  };
  const take = () => {
    const { d, n, noise, train: given } = store.state;
    if (running) pause();
    store.change({ view: "explore", family: given.family, omega: chosen().omega, off: [], d, n, noise });
  };
  /** The model that training stands for: of a search the best one with all layers, of a descent the latest. */
  const chosen = () => (store.state.train.optimiser === "quasi-newton" ? best : null) ?? latest;
  /** Training rests: the model is that of the page now, so that it can be shared and exported, and is measured. */
  const settle = () => {
    const { omega } = chosen();
    store.change({ family: store.state.train.family, omega, off: [] });
    return measure(omega);
  };
  const measure = async (omega) => {
    const { d, n, noise } = store.state;
    const found = await background.ask("losses", { d, n, noise, omega, size: 16384 });
    ({ floor } = found);
    const ratio = floor > 1e-15 ? `${short(found.loss / floor, 3)} ×` : "–";
    const items = [["loss on new sequences", short(found.loss, 3), `± ${short(found.error, 1)}`], ["floor", short(floor, 3), "Bayes predictor"], ["ratio", ratio, "loss / floor"], ["exploded", String(found.exploded), `of ${found.size.toLocaleString("en")}`]];
    numbers.replaceChildren(...items.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", { "data-name": name }, value, h("small", {}, more)))));
  };
  trainer.onReport = (report) => {
    curve.push(...report.curve);
    if (curve.length > KEPT) curve = curve.filter((_, i) => i % 2);
    if (report.omega) latest = { omega: report.omega, ...report.curve.at(-1) };
    const deepest = latest && latest.omega.length === store.state.train.layers;
    if (deepest && (report.done || !best || latest.loss < best.loss)) best = latest;
    explore.disabled = !latest;
    newest = report;
    if (!drawing) drawing = setTimeout(drawNow, pauseBetween);
  };
  const levels = background.latest("profile", (found, { noise }) => charts.profile(profileCard.frame, found, parseNoise(noise)));
  /** Draw the newest report. Drawing takes at most a third of the time, so that buttons always answer. */
  const drawNow = () => {
    const began = performance.now();
    drawing = null;
    if (!curve.length) return;
    draw(newest);
    pauseBetween = Math.max(60, 3 * (performance.now() - began));
    if (newest.done) finish();
  };
  const draw = (report) => {
    const { d, n, noise } = store.state;
    charts.training(curveCard.frame, curve, floor);
    if (latest) charts.omegas(omegaCard.frame, latest.omega, units({ d, n, noise: parseNoise(noise) }));
    if (latest) levels({ d, n, noise, omega: latest.omega, top: Math.max(2, 1.6 * parseNoise(noise).upper) });
    const where = latest?.stage ? `, ${latest.depth} layer${latest.depth > 1 ? "s" : ""}: ${latest.stage}, descent ${latest.start + 1} of ${latest.of}` : "";
    const speed = report.steps / Math.max(report.seconds, 1e-6);
    const near = floor > 1e-15 && latest ? ` = ${short(latest.loss / floor, 3)} × the floor` : "";
    status.textContent = `Step ${report.steps}${where}. Loss ${short(latest?.loss ?? NaN, 3)}${near}. ${Math.round(speed)} steps per second, ${report.seconds.toFixed(1)} s.`;
  };
  const finish = async () => {
    running = false;
    start.textContent = "Start";
    begun = null;
    await settle();
    status.textContent = `${newest.steps} steps in ${newest.seconds.toFixed(1)} s. The numbers above are those of the best model, on new sequences. Done.`;
    say("Training is done.");
  };
  const update = async (state) => {
    problem.update(state);
    const { train: given } = state;
    for (const [control, value] of [[family, given.family], [optimiser, given.optimiser], [layers, given.layers], [rate, given.rate], [seed, given.seed]]) if (document.activeElement !== control) control.value = value;
    rate.disabled = given.optimiser === "quasi-newton";
    if (begun && begun !== JSON.stringify(options())) await clear();
    const found = await background.ask("losses", { d: state.d, n: state.n, noise: state.noise, omega: [[0, 0, 0, 0]], size: 2048 });
    ({ floor } = found);
    if (!curve.length) {
      charts.training(curveCard.frame, [{ step: 0, loss: found.loss }], floor);
      levels({ d: state.d, n: state.n, noise: state.noise, omega: [[0, 0, 0, 0]], top: Math.max(2, 1.6 * parseNoise(state.noise).upper) });
    }
    app.updated?.();
  };
  charts.omegas(omegaCard.frame, [[0, 0, 0, 0]], [1, 1, 1, 1]);
  return { update, leave: () => trainer.worker.terminate() };
}

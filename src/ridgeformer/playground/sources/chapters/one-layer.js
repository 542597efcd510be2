// Chapters 1 to 5: one layer is one step. Each chapter mounts its controls and pictures and reports when it is solved.

import * as charts from "../charts.js";
import { slider, tokensOf } from "../controls.js";
import { moments } from "../contexts.js";
import { h, short } from "../dom.js";
import { card, movePoint, points } from "../explore.js";
import { Handles } from "../handles.js";
import { active, TERMS } from "../state.js";

const { Plot } = charts;
const TOY_BEST = 0.2331; // 1 % above the optimum 3/13
const PARABOLA = 2.5; // the largest loss that the picture of chapter 3 shows

/** The omegas of a model as a small table that does not change. */
function frozen(omega) {
  const head = h("tr", {}, h("th", {}, "layer"), TERMS.map((term) => h("th", {}, "ω", h("sub", {}, term))));
  const rows = omega.map((layer, l) => h("tr", {}, h("th", {}, l + 1), layer.map((value) => h("td", {}, short(value, 3)))));
  return h("table", { class: "numbers" }, h("caption", {}, `The ${4 * omega.length} parameters. They do not change.`), head, rows);
}

export const sameParameters = {
  title: "Same parameters, another answer",
  summary: "A trained model fits a line to ten examples. Drag them: the line follows, the parameters stay.",
  idea: "A trained model is a program. It reads ten examples (*x*, *y*), the context, and predicts *y* = *ŵ x* for any other *x*. Its parameters ω are fixed. The slope *ŵ*, its estimate, is computed anew for each context.",
  predict: "Nothing is trained here. What happens to the line when you drag an example?",
  task: "Drag examples until the prediction at *x* = 1 is above 1.5. Then make it smaller than −1.5.",
  start: { model: "d=1: diag/3/uniform(0,2)", d: 1, n: 10, noise: "uniform(0,2)", sigma: 0.8, seed: 4 },
  derivation: [
    "A linear transformer maps the examples to a prediction by fixed parameters. With *d* = 1 the prediction at *x* is *ŵ x*, and *ŵ* depends on the examples only through three numbers: *S* = Σ *x*^{2}, *b* = Σ *y x* and *q* = Σ *y*^{2}.",
    "This is what is meant by in-context learning: the parameters were trained once, on thousands of other contexts. What adapts to your examples is the estimate *ŵ*.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const picture = card("points", "Ten examples and the line of the model", "Drag the examples, or choose one with the tab key and move it with the arrow keys. The ring is the prediction at x = 1.", true);
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(frozen(active(store.state)), answer);
    pictures.append(picture.element);
    const handles = new Handles(picture.frame, (i, p) => movePoint(store, i, p), { label: (_, i) => `example ${i + 1}` });
    let high = false;
    const ask = engine.latest("context", (found, given) => {
      points(picture.frame, handles, found, { ...store.state, tokens: given.tokens });
      const prediction = found.path.at(-1)[0];
      high ||= prediction > 1.5;
      answer.textContent = `Prediction at x = 1: ${short(prediction, 3)}. Above 1.5: ${high ? "✓ done" : "not yet"}. Then below −1.5: ${high && prediction < -1.5 ? "✓ done" : "not yet"}.`;
      solve(high && prediction < -1.5);
    });
    return (state) => ask({ tokens: tokensOf(state), omega: active(state), noise: state.noise, sigma: state.sigma });
  },
};

export const onlyMoments = {
  title: "A layer sees only the Gram matrix",
  summary: "The model never sees a single example, only three sums over all of them.",
  idea: "This model has ten features and reads twenty examples. Linear attention adds up products of tokens, so the model never sees an example as such, only the sums *S* = Σ *x x*′, *b* = Σ *y x* and *q* = Σ *y*^{2}. Together they are the Gram matrix *G*.",
  predict: "You flip the sign of the features of some examples. Does the prediction change? And if you flip labels as well?",
  task: "Change at least three examples so that the prediction moves by less than 10^{−9}.",
  start: { model: "diag/4/uniform(0,5)", d: 10, n: 20, noise: "uniform(0,5)", sigma: 2, seed: 2 },
  derivation: [
    "Replace (*x*, *y*) by (−*x*, −*y*). Then *x x*′, *y x* and *y*^{2} stay the same, so *S*, *b* and *q* do, and with them everything that a linear transformer can compute.",
    "In matrices: a token *e* receives Σ_{j} (*e*_{j}′*Q e*) *P e*_{j} = *P G Q e* with *G* = Σ_{j} *e*_{j} *e*_{j}′. Here *Q* = *W*_{K}′*W*_{Q} and *P* = *W*_{O} *W*_{V}, softmax is left out, and the query enters as (*x*, 0).",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const original = tokensOf({ ...store.state, tokens: null });
    const flips = { x: new Set(), y: new Set() };
    const answer = h("p", { class: "answer", role: "status" });
    const picture = card("gram", "The Gram matrix G", "S in the upper left, b in the last column and row, q in the corner. Orange is positive, purple negative.");
    const update = card("update", "The estimate ŵ", "Its ten coordinates. Grey bars: with the examples as they were. Blue dots: now.");
    pictures.append(picture.element, update.element);
    const button = (kind, i) => {
      const one = h("button", { type: "button", class: "flip", "aria-pressed": "false", "aria-label": `flip the sign of ${kind} of example ${i + 1}`, onclick: () => {
        if (flips[kind].has(i)) flips[kind].delete(i);
        else flips[kind].add(i);
        one.setAttribute("aria-pressed", String(flips[kind].has(i)));
        const sign = (k, t) => (flips[k].has(t) ? -1 : 1);
        store.change({ tokens: { x: original.x.map((row, t) => row.map((v) => sign("x", t) * v)), y: original.y.map((v, t) => sign("y", t) * v), task: original.task } });
      } }, `−${kind}`);
      return one;
    };
    const list = original.y.map((_, i) => h("li", {}, h("span", {}, `${i + 1}`), button("x", i), button("y", i)));
    controls.append(h("p", { class: "hint" }, "Flip the signs of the features (−x) or the label (−y) of an example."), h("ol", { class: "tokens" }, list), answer);
    let before = null;
    const query = original.x[0].map((_, i) => Math.sin(3 * i + 1));
    const predict = (w) => w.reduce((sum, value, i) => sum + value * query[i], 0);
    const ask = engine.latest("context", (found, given) => {
      const w = found.path.at(-1);
      before ??= w;
      const moved = Math.abs(predict(w) - predict(before));
      const changed = given.tokens.y.filter((_, t) => flips.x.has(t) || flips.y.has(t)).length;
      answer.textContent = changed ? `${changed} changed. The prediction moved by ${moved < 1e-9 ? "less than 10⁻⁹" : short(moved, 3)}.` : "No example is changed yet.";
      gram(picture.frame, moments(given.tokens));
      bars(update.frame, before, w);
      solve(changed >= 3 && moved < 1e-9);
    });
    ask({ tokens: original, omega: active(store.state), noise: store.state.noise, sigma: store.state.sigma });
    return (state) => ask({ tokens: tokensOf(state), omega: active(state), noise: state.noise, sigma: state.sigma });
  },
};

function gram(frame, { gram: G, d }) {
  const D = d + 1;
  const cells = Array.from(G, (value, k) => ({ row: Math.floor(k / D) + 1, column: (k % D) + 1, value: Math.sign(value) * Math.sqrt(Math.abs(value)) }));
  const top = Math.max(...cells.map(({ value }) => Math.abs(value)));
  const shade = ({ value }) => `color-mix(in srgb, var(${value < 0 ? "--negative" : "--positive"}) ${Math.round(100 * (Math.abs(value) / top) ** 0.7)}%, var(--card))`;
  const name = (i) => (i === D ? "y" : `x${i}`);
  charts.draw(frame, {
    height: 320, marginTop: 26, marginBottom: 10,
    x: { axis: "top", label: null, tickFormat: name }, y: { label: null, tickFormat: name },
    color: { type: "identity" }, // of the style sheet, so that 0 has the colour of the card, light or dark
    marks: [Plot.cell(cells, { x: "column", y: "row", fill: shade, inset: 0.5 })],
  }, "The Gram matrix of the tokens.");
}

function bars(frame, before, now) {
  const rows = Array.from(now, (value, i) => ({ i: i + 1, value, before: before[i] }));
  charts.draw(frame, {
    x: { label: "coordinate of ŵ", tickFormat: "d" }, y: { label: "ŵ", grid: true },
    marks: [Plot.barY(rows, { x: "i", y: "before", fill: "var(--faint)" }), Plot.dot(rows, { x: "i", y: "value", fill: "var(--model)", r: 5 }), Plot.ruleY([0])],
  }, `The estimate: ${rows.map(({ value }) => short(value, 3)).join(", ")}.`);
}

export const gradientStep = {
  title: "ω_{yx} is a gradient step",
  summary: "One number makes one step of gradient descent. How long should the step be?",
  idea: "One layer with nothing but ω_{yx} computes *ŵ* = −ω_{yx} Σ *y x*: one step of gradient descent from 0, with the length −ω_{yx}. A negative ω is descent, because the prediction is minus the last coordinate of the query. The loss is half the squared distance of *ŵ* from the task *w*, averaged over many contexts.",
  predict: "With n = 10 examples, is −1/10 the best value?",
  task: "Find ω_{yx} with a loss of at most 0.2331, without noise. Then set σ = 3: where is the minimum now?",
  start: { d: 2, n: 10, noise: "fixed(0)", family: "gdpp", omega: [[0, 0, 0, 0]], sigma: 0, values: { omega: 0, sigma: 0 } },
  derivation: [
    "With *ŵ* = η *b* and *b* = *S w* + noise, the loss is ½ E |η *b* − *w*|^{2}. For standard normal features E *S* = *n I* and E *S*^{2} = *n* (*n* + *d* + 1) *I*, so it equals *d*/2 (1 − 2 η *n* + η^{2} *n* (*n* + *d* + 1 + σ^{2})).",
    "Its minimum is at η = 1 / (*n* + *d* + 1 + σ^{2}), not at 1/*n*: the step must be shorter because *S* varies from context to context. The least loss is *d*/2 · (*d* + 1 + σ^{2}) / (*n* + *d* + 1 + σ^{2}). Here that is 3/13 = 0.2308 at ω = −1/13; with −1/10 it is 0.300. At σ = 3 it is 0.5455 at ω = −1/22.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const set = (part) => {
      const values = { ...store.state.values, ...part };
      store.change({ values, omega: [[0, 0, values.omega, 0]], noise: `fixed(${values.sigma})`, sigma: values.sigma });
    };
    const { values } = store.state;
    const omega = slider({ id: "chapter-omega", label: "ω_{yx}", min: -0.2, max: 0.02, step: 0.0005, value: values.omega ?? 0, format: (x) => short(x, 3), onInput: (x) => set({ omega: x }) });
    const sigma = slider({ id: "chapter-sigma", label: "noise level σ", min: 0, max: 3, step: 0.5, value: values.sigma ?? 0, onInput: (x) => set({ sigma: x }) });
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(omega.element, sigma.element, answer);
    const parabola = card("parabola", "The loss as a function of ω_{yx}", "32,768 fixed contexts with d = 2, n = 10.");
    const picture = card("step", "One context: the step from 0", "Blue: from 0 to the estimate ŵ. Crosses: the task and the estimates of classical methods.");
    pictures.append(parabola.element, picture.element);
    const ask = engine.latest("challenge", ({ loss }, { given }) => {
      answer.textContent = `Loss: ${short(loss, 4)}`;
      solve(given.sigma === 0 && loss <= TOY_BEST);
    });
    const inside = ({ loss }) => loss <= PARABOLA;
    const curve = engine.latest("challenge", (rows, { given }) => {
      charts.draw(parabola.frame, {
        x: { label: "ω yx", grid: true }, y: { label: "loss", grid: true, domain: [0, PARABOLA] },
        marks: [
          Plot.line(rows, { x: "omega", y: "loss", stroke: "var(--faint)", strokeWidth: 2.5, clip: true }),
          Plot.ruleX([-1 / 10], { stroke: "var(--least)", strokeDasharray: "3 3" }), Plot.text([-1 / 10], { x: (x) => x, frameAnchor: "top", text: () => "−1/n", dy: -12 }),
          Plot.tip(rows.filter(inside), Plot.pointerX({ x: "omega", y: "loss", title: (row) => `ω = ${short(row.omega, 3)}\nloss ${short(row.loss)}` })),
          Plot.dot([at(rows, given.omega)].filter(inside), { x: "omega", y: "loss", fill: "var(--model)", r: 6 }),
        ],
      }, "A parabola with its minimum left of 0.");
    });
    const at = (rows, x) => {
      const i = Math.min(rows.length - 2, Math.max(0, Math.floor(((x - rows[0].omega) / (rows.at(-1).omega - rows[0].omega)) * (rows.length - 1))));
      const t = (x - rows[i].omega) / (rows[i + 1].omega - rows[i].omega);
      return { omega: x, loss: rows[i].loss + t * (rows[i + 1].loss - rows[i].loss) };
    };
    const path = engine.latest("context", (found) => charts.path(picture.frame, found));
    return (state) => {
      const { omega: x = 0, sigma: level = 0 } = state.values;
      omega.update(x);
      sigma.update(level);
      ask({ name: "toy", given: { omega: [[0, 0, x, 0]], sigma: level } });
      curve({ name: "parabola", given: { sigma: level, from: -0.2, to: 0.02, omega: x } });
      path({ tokens: tokensOf(state), omega: state.omega, noise: state.noise, sigma: state.sigma });
    };
  },
};

export const trainingFindsIt = {
  title: "Training finds the step",
  summary: "Gradient descent finds that number by itself, if the rate is right.",
  idea: "A trained layer does not store ω_{yx}. It stores matrices *P* (values) and *Q* (keys and queries), of which only one entry each matters here: ω_{yx} = *P Q*. Gradient descent on these two numbers starts near 0 and finds the step of chapter 3 by itself.",
  predict: "What happens if the rate is too small, or too large? And from a start at exactly 0?",
  task: "Reach a loss of at most 0.2331 within 50 steps.",
  start: { d: 2, n: 10, noise: "fixed(0)", family: "gdpp", omega: [[0, 0, 0, 0]], sigma: 0, values: { rate: 0.002, p: 0.01, q: -0.01 } },
  derivation: [
    "With ω = *P Q* the gradient is (*Q*, *P*) times the slope of the parabola of chapter 3, which is *d n* = 20 at 0. Near 0 the difference *P* − *Q* grows by the factor 1 + 20 · rate in every step: with the rate 0.004 it takes more than 50 steps to get from 0.01 to 0.28.",
    "At the optimum the curvature is *d n* (*n* + *d* + 1) (*P*^{2} + *Q*^{2}) = 260 · 0.154 = 40. Descent is stable while the rate is below 2/40 = 0.05. At exactly 0 the gradient is zero: it is a saddle, not a minimum, and nothing ever moves.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const set = (part) => store.change({ values: { ...store.state.values, ...part } });
    const rates = [0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.045, 0.05, 0.06, 0.08, 0.1];
    const nearest = (x) => rates.reduce((best, rate, i) => (Math.abs(rate - x) < Math.abs(rates[best] - x) ? i : best), 0);
    const rate = slider({ id: "chapter-rate", label: "rate", min: 0, max: rates.length - 1, step: 1, value: nearest(store.state.values.rate ?? 0.002), format: (i) => String(rates[i]), onInput: (i) => set({ rate: rates[i], steps: 0 }) });
    const size = slider({ id: "chapter-start", label: "start P = −Q", min: 0, max: 0.05, step: 0.005, value: store.state.values.p ?? 0.01, onInput: (x) => set({ p: x, q: -x, steps: 0 }) });
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Train 50 steps";
    };
    const forward = () => {
      const steps = Math.min(50, (store.state.values.steps ?? 0) + 1);
      set({ steps });
      if (steps >= 50) stop();
    };
    const play = h("button", { type: "button", class: "main", onclick: () => {
      if (timer) return stop();
      if ((store.state.values.steps ?? 0) >= 50) set({ steps: 0 });
      timer = setInterval(forward, 60);
      play.textContent = "Pause";
    } }, "Train 50 steps");
    const buttons = h("div", { class: "buttons" }, play, h("button", { type: "button", onclick: forward }, "Step"), h("button", { type: "button", onclick: () => (stop(), set({ steps: 0 })) }, "Reset"));
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(rate.element, size.element, buttons, answer);
    const curve = card("descent", "Loss by step", "Dashed: the loss that must be reached.");
    const plane = card("pq", "The path of (P, Q)", "The curve is where P Q = −1/13, the best step.");
    pictures.append(curve.element, plane.element);
    const ask = engine.latest("challenge", (path, { given }) => {
      const shown = path.slice(0, given.shown + 1);
      const last = shown.at(-1);
      answer.textContent = `Step ${last.step}: P = ${short(last.p, 3)}, Q = ${short(last.q, 3)}, loss ${short(last.loss, 4)}`;
      charts.draw(curve.frame, {
        x: { label: "step", domain: [0, 50], grid: true }, y: { label: "loss", domain: [0, 1.2], grid: true },
        marks: [Plot.ruleY([TOY_BEST], { stroke: "var(--bayes)", strokeDasharray: "5 4" }), Plot.line(shown, { x: "step", y: "loss", stroke: "var(--model)", strokeWidth: 2.4, clip: true }), Plot.dot([last].filter(({ loss }) => loss <= 1.2), { x: "step", y: "loss", fill: "var(--model)", r: 5 })],
      }, `Loss ${short(last.loss, 4)} after ${last.step} steps.`);
      const best = Array.from({ length: 60 }, (_, i) => 0.08 + i * 0.012).map((p) => ({ p, q: -1 / 13 / p }));
      charts.draw(plane.frame, {
        x: { label: "P", domain: [-0.2, 0.6], grid: true }, y: { label: "Q", domain: [-0.6, 0.2], grid: true },
        marks: [Plot.line(best, { x: "p", y: "q", stroke: "var(--bayes)", strokeWidth: 2, clip: true }), Plot.line(shown, { x: "p", y: "q", stroke: "var(--model)", clip: true }), Plot.dot(shown, { x: "p", y: "q", fill: "var(--model)", r: 3, clip: true })],
      }, `P = ${short(last.p, 3)}, Q = ${short(last.q, 3)}.`);
      solve(shown.some(({ loss }) => loss <= TOY_BEST));
    });
    const update = ({ values }) => {
      rate.update(nearest(values.rate ?? 0.002));
      size.update(values.p ?? 0.01);
      ask({ name: "descend", given: { p: values.p ?? 0.01, q: values.q ?? -0.01, rate: values.rate ?? 0.002, steps: 50, shown: values.steps ?? 0 } });
    };
    update.leave = stop;
    return update;
  },
};

export const secondLayer = {
  title: "A second layer is more than a second step",
  summary: "The first layer can change the features, so that the second one takes a longer step.",
  idea: "ω_{xx} changes the features, and with them the eigenvalues that the next layer sees: *s* becomes *s* (1 + ω_{xx} *s*)^{2}. Large eigenvalues shrink, so that the next step can be longer.",
  predict: "Two plain gradient steps reach 0.0806 at best. How much can ω_{xx} of the first layer gain?",
  task: "Reach a loss below 0.05 with two layers, without noise.",
  start: { d: 2, n: 10, noise: "fixed(0)", family: "gdpp", omega: [[0, 0, -0.05, 0], [0, 0, -0.05, 0]], sigma: 0, values: {} },
  derivation: [
    "The first layer maps *S* to (*I* + ω_{xx} *S*) *S* (*I* + ω_{xx} *S*), so an eigenvalue *s* becomes *s* (1 + ω_{xx} *s*)^{2}. With ω_{xx} < 0 large and small eigenvalues come closer together, and one long step then serves all directions: this is the ++ of GD++.",
    "The optimum here is a loss of 0.0168 at ω_{xx} = −0.038, ω_{yx} = −0.045 and −0.296. With ω_{xx} = 0 the best is 0.0806. For d = 10, n = 20 two layers of GD++ are as good as four plain steps: 0.268 and 0.266.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const set = (l, i) => (x) => {
      const omega = store.state.omega.map((layer) => [...layer]);
      omega[l][i] = x;
      store.change({ omega });
    };
    const make = (id, label, l, i, min) => slider({ id, label, min, max: 0, step: 0.001, value: store.state.omega[l][i], onInput: set(l, i) });
    const sliders = [[make("xx1", "ω_{xx} of layer 1", 0, 0, -0.08), 0, 0], [make("yx1", "ω_{yx} of layer 1", 0, 2, -0.15), 0, 2], [make("yx2", "ω_{yx} of layer 2", 1, 2, -0.5), 1, 2]];
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(...sliders.map(([one]) => one.element), answer);
    const map = card("map", "What layer 1 does to eigenvalues", "Grey: an eigenvalue that stays as it is. S has two of them here, mostly between 2 and 23.");
    const ratio = card("ratio", "The estimate after two layers, by eigenvalue", "ŵ / w along a direction with the eigenvalue s. 1 is right: without noise the loss is what is missing to 1.");
    pictures.append(map.element, ratio.element);
    const ask = engine.latest("challenge", ({ loss }) => {
      answer.textContent = `Loss: ${short(loss, 4)}`;
      solve(loss < 0.05);
    });
    const filters = engine.latest("context", (found, given) => {
      const xx = given.omega[0][0];
      const s = Array.from({ length: 60 }, (_, i) => (30 * i) / 59);
      charts.draw(map.frame, {
        x: { label: "eigenvalue s", grid: true }, y: { label: "after layer 1", domain: [0, 30], grid: true },
        marks: [Plot.line(s, { x: (x) => x, y: (x) => x, stroke: "var(--faint)" }), Plot.line(s, { x: (x) => x, y: (x) => x * (1 + xx * x) ** 2, stroke: "var(--model)", strokeWidth: 2.6, clip: true })],
      }, "Eigenvalues before and after layer 1.");
      const rows = found.filters.filter(({ layer }) => layer === 2);
      charts.draw(ratio.frame, {
        x: { label: "eigenvalue s", grid: true, domain: [0, 30] }, y: { label: "ŵ / w", domain: [0, 1.6], grid: true },
        marks: [Plot.ruleY([1], { stroke: "var(--bayes)", strokeDasharray: "5 4" }), Plot.line(rows, { x: "eigenvalue", y: "gain", stroke: "var(--model)", strokeWidth: 2.6, clip: true })],
      }, "How much of the task w the model finds, by eigenvalue.");
    });
    const wide = { x: [[5.1, 0], [0, 2]], y: [0, 0], task: [0, 0] }; // a context whose filter is drawn up to s = 30
    return ({ omega, noise, sigma }) => {
      sliders.forEach(([one, l, i]) => one.update(omega[l][i]));
      ask({ name: "toy", given: { omega, sigma: 0 } });
      filters({ tokens: wide, omega, noise, sigma });
    };
  },
};

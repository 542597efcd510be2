// Chapters 6 to 10: noise, and what trained layers do about it.

import { HANDLES } from "../challenges.js";
import * as charts from "../charts.js";
import { slider } from "../controls.js";
import { h, short } from "../dom.js";
import { card } from "../explore.js";
import { Handles } from "../handles.js";
import { parseNoise } from "../noise.js";
import { active, TERMS } from "../state.js";

const { Plot } = charts;
const NOISE = "uniform(0,5)";
const TALLEST = 2; // the largest loss that the pictures of chapter 6 show
const WIDEST = 13; // the largest noise level of chapter 10, beyond that at which four layers explode
const zoo = { d: 10, n: 20, noise: NOISE, omega: [[0, 0, -0.03, 0]] };

export const onePenalty = {
  title: "One penalty for all noise",
  summary: "Ridge regression needs to know the noise. What is the best compromise if it does not?",
  idea: "Labels are noisy. Ridge regression is the best estimate if the noise level σ is known: *ŵ* = (*S* + σ^{2} *I*)\u2060^{−1} *b* with *S* = Σ *x x*′ and *b* = Σ *y x*. Now σ is anything from 0 to 5 and nobody tells it. Choose one penalty in place of σ^{2}. The adjusted loss is the error beyond that of ridge regression that knows σ.",
  predict: "Which noise level should the penalty suit: the smallest, the mean, the largest, or another one?",
  task: "Find a penalty with a loss of at most 0.362.",
  start: { ...zoo, values: { penalty: 1 } },
  derivation: [
    "The estimate of ridge regression is linear in *y*, so its risk is linear in σ^{2}. The mean over σ is therefore the risk at E σ^{2} = 25/3, and the best penalty is exactly that: 8.33, with a loss of 0.3594.",
    "GD++ is linear in *y* as well, whatever its depth. So it can only become this predictor, and seven layers do: 0.36. To do better a model must read the noise from the context.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const penalty = slider({ id: "penalty", label: "penalty", min: 0, max: 25, step: 0.25, value: store.state.values.penalty ?? 1, onInput: (x) => store.change({ values: { penalty: x } }) });
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(penalty.element, answer);
    const curve = card("penalties", "Loss by penalty", "The mean over all noise levels from 0 to 5.");
    const levels = card("levels", "Loss by noise level", "At the chosen penalty. The dashed line is where σ² equals the penalty.");
    pictures.append(curve.element, levels.element);
    const ask = engine.latest("challenge", (found, { given }) => {
      answer.textContent = `Loss: ${short(found.loss, 4)}`;
      const here = [{ penalty: given.penalty, loss: found.loss }];
      charts.draw(curve.frame, { x: { label: "penalty", grid: true }, y: { label: "adjusted loss", domain: [0, TALLEST], grid: true }, marks: [Plot.line(found.curve, { x: "penalty", y: "loss", stroke: "var(--faint)", strokeWidth: 2.5, clip: true }), Plot.dot(here.filter(({ loss }) => loss <= TALLEST), { x: "penalty", y: "loss", fill: "var(--model)", r: 6 })] }, `Loss ${short(found.loss, 4)} at the penalty ${given.penalty}.`);
      charts.draw(levels.frame, { x: { label: "noise level σ", grid: true }, y: { label: "adjusted loss", domain: [0, TALLEST], grid: true }, marks: [Plot.ruleX([Math.sqrt(given.penalty)].filter((x) => x <= 5), { stroke: "var(--faint)", strokeDasharray: "4 3" }), Plot.line(found.levels, { x: "sigma", y: "loss", stroke: "var(--model)", strokeWidth: 2.4, clip: true })] }, "The loss is least where the noise variance is the penalty.");
      solve(found.loss <= 0.362);
    });
    return ({ values }) => {
      penalty.update(values.penalty ?? 1);
      ask({ name: "penalty", given: { penalty: values.penalty ?? 1 } });
    };
  },
};

export const theFloor = {
  title: "The floor",
  summary: "The residuals of a context tell how noisy it is. How good can a predictor become with that?",
  idea: "The residuals of least squares, *y* − ⟨*ŵ*, *x*⟩, tell how noisy a context is. A penalty that follows their variance beats any constant. How far can this go? There is a limit, the floor: the loss of the best predictor that can exist.",
  predict: "Should the penalty be equal to the residual variance everywhere, also where that is very large?",
  task: "Drag the five handles until the loss is below 0.055.",
  start: { ...zoo, values: {} },
  derivation: [
    "The Bayes predictor averages ridge regression over the posterior of σ: *ŵ* = E[(*S* + σ^{2} *I*)\u2060^{−1} *b* | context]. Its mean loss is the floor, 0.0389 (0.041 on the 8,192 contexts of this chapter): no predictor that does not know σ can be below it on average. The floor is the cost of not knowing σ; what a model loses beyond it is the cost of an imperfect algorithm.",
    "The residual variance itself as a penalty (AdaRR) has 0.069. Since σ is at most 5, penalties above 25 make no sense: the best curve is a little above the residual variance in the middle and ends near 20. A factor and a cut (TunedRR) have 0.050, the best five handles 0.0475.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const heightsOf = ({ values }) => HANDLES.map((_, i) => values[`h${i}`] ?? 8.33);
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(h("p", { class: "hint" }, "Each handle sets the penalty for contexts with this residual variance. Dots are contexts; their colour is the true noise level."), answer);
    const picture = card("handles", "Penalty by residual variance", "Drag the handles up and down, or use the arrow keys.", true);
    pictures.append(picture.element);
    const move = (i, { y }) => store.change({ values: { ...Object.fromEntries(heightsOf(store.state).map((height, k) => [`h${k}`, height])), [`h${i}`]: Number(y.toFixed(2)) } });
    const handles = new Handles(picture.frame, move, { axes: "y", step: 0.5, label: (_, i) => `penalty at residual variance ${HANDLES[i]}` });
    const ask = engine.latest("challenge", (found, { given }) => {
      answer.textContent = `Loss: ${short(found.loss, 3)}. Residual variance itself: ${short(found.adaptive, 3)}. Floor: ${short(found.floor, 3)}.`;
      const line = HANDLES.map((x, i) => ({ x, y: given.heights[i] }));
      const chart = charts.draw(picture.frame, {
        x: { label: "residual variance of the context", domain: [0, 32], grid: true }, y: { label: "penalty, and true σ² of contexts (dots)", domain: [0, 32], grid: true },
        color: { type: "linear", domain: [0, 5], scheme: "viridis", label: "true σ", legend: true },
        marks: [Plot.dot(found.sample, { x: "residual", y: (row) => row.sigma ** 2, fill: "sigma", r: 2.2, fillOpacity: 0.55, clip: true }), Plot.line([[0, 0], [32, 32]], { stroke: "var(--faint)", strokeDasharray: "3 3" }), Plot.line([...line, { x: 32, y: given.heights.at(-1) }], { x: "x", y: "y", stroke: "var(--model)", strokeWidth: 3 })],
      }, `Penalties ${given.heights.join(", ")}: loss ${short(found.loss, 3)}.`);
      handles.place(chart, line);
      solve(found.loss < 0.055);
    });
    return (state) => ask({ name: "handles", given: { heights: heightsOf(state) } });
  },
};

export const readsNoise = {
  title: "ω_{yy} reads the noise",
  summary: "One more number shrinks the prediction where a context is noisy.",
  idea: "Three layers of GD++ (only ω_{xx} and ω_{yx}) have taken the signal out of the labels. What is left of *q* = Σ *y*^{2} measures the noise. One more layer with nothing but ω_{yy} multiplies the prediction by 1 + ω_{yy} *q*.",
  predict: "Noise is 1 or 3. Should the extra layer make predictions larger or smaller, and in which contexts more?",
  task: "Find ω_{yy} with a loss below 0.20.",
  start: { model: "gdpp/3/categorical(1,3)", more: [[0, 0, 0, 0]], d: 10, n: 20, noise: "categorical(1,3)", sigma: 3, family: "diag", values: {} },
  derivation: [
    "GD++ is linear in *y*, so without the extra layer the loss is that of one penalty for all noise: 0.219. With it, the estimate is (1 + ω_{yy} *q*_{3}) *ŵ*_{3}, where *q*_{3} is the sum of squares that three layers left over: about the residual sum of squares, near *n* − *d* at σ = 1 and nine times that at σ = 3.",
    "A negative ω_{yy} shrinks the estimate where the context is noisy and hardly elsewhere: the first step beyond gradient descent. The optimum is 0.187 at −0.001; values from about −0.0016 to −0.0004 are below 0.20.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    const set = (x) => {
      const omega = store.state.omega.map((layer) => [...layer]);
      omega[3] = [0, 0, 0, x];
      store.change({ omega });
    };
    const yy = slider({ id: "chapter-yy", label: "ω_{yy} of layer 4", min: -0.003, max: 0.001, step: 0.0001, value: store.state.omega[3]?.[3] ?? 0, format: (x) => x.toFixed(4).replace("-", "−"), onInput: set });
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(yy.element, answer);
    const picture = card("two-levels", "Loss at the two noise levels", "8,192 fixed contexts.");
    const profile = card("profile", "Loss by noise level", "The model has met σ = 1 and σ = 3 only.");
    pictures.append(picture.element, profile.element);
    const ask = engine.latest("challenge", ({ loss, at }) => {
      answer.textContent = `Loss: ${short(loss, 3)} (σ = 1: ${short(at[0].loss, 3)}, σ = 3: ${short(at[1].loss, 3)})`;
      const rows = [...at.map((row) => ({ name: `σ = ${row.sigma}`, loss: row.loss })), { name: "mean", loss }];
      charts.draw(picture.frame, { x: { label: null, domain: rows.map(({ name }) => name) }, y: { label: "adjusted loss", domain: [0, 0.5], clamp: true, grid: true }, marks: [Plot.barY(rows, { x: "name", y: (row) => Math.min(row.loss, 0.5), fill: (row) => (row.name === "mean" ? "var(--model)" : "var(--faint)") }), Plot.ruleY([0.2], { stroke: "var(--bayes)", strokeDasharray: "5 4" }), Plot.text(rows, { x: "name", y: (row) => Math.min(row.loss, 0.5), text: (row) => short(row.loss, 3), dy: -8 })] }, `Loss ${short(loss, 3)}.`);
      solve(loss < 0.2);
    });
    const levels = engine.latest("profile", (found) => charts.profile(profile.frame, found, parseNoise("categorical(1,3)")));
    return ({ omega }) => {
      yy.update(omega[3]?.[3] ?? 0);
      ask({ name: "levels", given: { omega, noise: "categorical(1,3)", levels: [1, 3] } });
      levels({ d: 10, n: 20, noise: "categorical(1,3)", omega, top: 5 });
    };
  },
};

export const neededLayer = {
  title: "A layer that raises the loss and is needed",
  summary: "Layer 3 of a trained model makes the prediction worse. Take it out and see.",
  idea: "Read the prediction after each layer of this trained model: layer 3 makes it worse. Is it useless?",
  predict: "What is the loss without layer 3? Which of its four omegas matters most?",
  task: "Switch terms of layer 3 off and on and see what breaks. Then set ω_{xy} to 0 and find by hand a value that restores the model: a loss below 0.065.",
  start: { model: "diag/4/uniform(0,5)", d: 10, n: 20, noise: NOISE, values: {} },
  derivation: [
    "On the 8,192 contexts of this page layer 3 raises the loss of the readout from 0.51 to 0.56, yet without it the model ends at 1.54 instead of 0.059. It does not improve the estimate; it prepares the features and labels that layer 4 reads.",
    "Without ω_{xy} the loss is 0.44, without ω_{xx} 0.18, without ω_{yy} 0.114, and without ω_{yx}, the gradient step itself, still 0.0592. Values of ω_{xy} from −0.008 to −0.0095 restore it. A layer whose readout does not improve is not useless; and a huge loss without a layer does not measure its importance either, because the others rely on its scale.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine } = app;
    let broken = false;
    const set = (x) => {
      const omega = store.state.omega.map((layer) => [...layer]);
      omega[2][1] = x;
      store.change({ omega });
    };
    const answer = h("p", { class: "answer", role: "status" });
    const xy = slider({ id: "chapter-xy", label: "ω_{xy} of layer 3", min: -0.015, max: 0, step: 0.0005, value: store.state.omega[2][1], onInput: set });
    const off = (name) => h("button", { type: "button", class: "switch", "aria-pressed": "false", onclick: () => toggle(name) }, name);
    const toggle = (name) => {
      const keys = name === "whole layer 3" ? TERMS.map((term) => `3.${term}`) : [`3.${name}`];
      const now = store.state.off;
      const all = keys.every((key) => now.includes(key));
      store.change({ off: all ? now.filter((key) => !keys.includes(key)) : [...new Set([...now, ...keys])] });
    };
    const names = [...TERMS, "whole layer 3"];
    const switches = names.map(off);
    const zero = h("button", { type: "button", onclick: () => set(0) }, "Set ω", h("sub", {}, "xy"), " to 0");
    controls.append(h("p", { class: "hint" }, "Switch off in layer 3:"), h("div", { class: "buttons" }, switches), zero, xy.element, answer);
    const layers = card("by-layer", "Loss by layer", "The adjusted loss if the prediction were read after this layer. Layer 0: predicting 0.");
    const broke = card("ablations", "The loss without each term", "One omega of the layers that are on is set to 0, one at a time; the stronger the colour, the worse.");
    pictures.append(layers.element, broke.element);
    const ask = engine.latest("pictures", ({ losses, ablations }, state) => {
      charts.byLayer(layers.frame, losses);
      charts.ablations(broke.frame, ablations, losses.loss);
      answer.textContent = `Loss: ${short(losses.loss, 3)}`;
      if (state.omega[2][1] === 0) broken = true;
      solve(broken && !state.off.length && losses.loss < 0.065);
    });
    return (state) => {
      xy.update(state.omega[2][1]);
      xy.input.disabled = zero.disabled = state.off.includes("3.xy"); // it would change nothing
      switches.forEach((one, i) => {
        const keys = i < 4 ? [`3.${TERMS[i]}`] : TERMS.map((term) => `3.${term}`);
        one.setAttribute("aria-pressed", String(keys.every((key) => state.off.includes(key))));
      });
      const omega = active(state);
      const { d, n, noise } = state;
      const question = { losses: { d, n, noise, omega, size: 8192 }, ablations: { d, n, noise, omega, size: 8192 } };
      ask(question, state);
    };
  },
};

export const outside = {
  title: "Outside of training",
  summary: "With more noise than in training a deep model can explode. When?",
  idea: "Both models were trained with noise up to 5. Beyond it they are on their own. A deep model is a polynomial of high degree: on some contexts its loss is above 100 *d*. It explodes.",
  predict: "Which model is safer: four layers or seven?",
  task: "With seven layers, find the smallest σ (in steps of 0.25) at which 1 % of 20,000 contexts explode.",
  start: { model: "diag/7/uniform(0,5)", d: 10, n: 20, noise: NOISE, values: { sigma: 2, layers: 7 } },
  derivation: [
    "Every layer of Diag cubes the Gram matrix, so seven layers are a polynomial of degree 3^{7} in the moments. Inside of training it is kept small; outside it grows without bound. At σ = 7.75 about 1.1 % of the contexts explode, at 7.5 it is 0.6 %.",
    "Four layers have none at σ = 8. Deeper is better inside of training, and not safer outside. Between σ = 2.5 and 4 the adjusted loss falls, but that does not mean that noise is easy: the unadjusted loss of the oracle itself rises from 0 to above 3 at σ = 5.",
  ],
  mount({ controls, pictures, app, solve }) {
    const { store, engine, models } = app;
    const set = (part) => store.change({ values: { ...store.state.values, ...part } });
    const choose = (layers) => {
      const { omega } = models.find(({ name }) => name === `diag/${layers}/uniform(0,5)`);
      store.change({ omega: structuredClone(omega), values: { ...store.state.values, layers } });
    };
    const sigma = slider({ id: "chapter-level", label: "noise level σ", min: 0, max: WIDEST, step: 0.25, value: store.state.values.sigma ?? 2, onInput: (x) => set({ sigma: x }) });
    const depth = h("select", { id: "chapter-depth", onchange: () => choose(Number(depth.value)) }, [7, 4].map((value) => h("option", { value }, `${value} layers`)));
    const answer = h("p", { class: "answer", role: "status" });
    controls.append(h("div", { class: "field" }, h("label", { for: "chapter-depth" }, "model"), depth), sigma.element, answer);
    const profile = card("profile", "Loss by noise level", "The band is the noise of training, the vertical line your σ. × marks levels at which one of 256 contexts explodes.", true);
    pictures.append(profile.element);
    const ask = engine.latest("challenge", ({ share, before }, { given }) => {
      answer.textContent = `${Math.round(20000 * share).toLocaleString("en")} of 20,000 contexts (${(100 * share).toFixed(2)} %) explode at σ = ${given.sigma}.`;
      solve(given.omega.length === 7 && share >= 0.01 && before < 0.01);
    });
    const levels = engine.latest("profile", (found, given) => charts.profile(profile.frame, found, parseNoise(given.noise), store.state.values.sigma));
    return ({ omega, values }) => {
      sigma.update(values.sigma ?? 2);
      depth.value = omega.length;
      ask({ name: "explosions", given: { omega, sigma: values.sigma ?? 2 } });
      levels({ d: 10, n: 20, noise: NOISE, omega, top: WIDEST });
    };
  },
};

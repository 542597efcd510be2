// The view "Explore": a model, a problem, and everything that can be seen of them at once.

import * as charts from "./charts.js";
import { contextControls, familyControl, modelChoice, omegaControls, problemControls, tokensOf } from "./controls.js";
import { moments, withEigenvalue } from "./contexts.js";
import { h, idle, rich, short } from "./dom.js";
import { Handles } from "./handles.js";
import { keep, recall } from "./memory.js";
import { parseNoise } from "./noise.js";
import { active } from "./state.js";

/** A picture with a title and a sentence. Returns its element and the frame for the chart. */
export function card(id, title, text, wide = false) {
  const frame = h("div", { class: "frame" });
  const element = h("figure", { id, class: wide ? "card wide" : "card" }, h("h3", {}, rich(title)), frame, h("figcaption", {}, rich(text)));
  return { element, frame };
}

/** The headline: loss, floor and ratio. */
export function headline() {
  const element = h("dl", { class: "headline" });
  const update = (found) => {
    const known = found.floor < 1e-15;
    const items = [
      ["adjusted loss", short(found.loss, 3), `± ${short(found.error, 1)}`, "the excess over an oracle that knows σ"],
      ["floor", known ? "0" : short(found.floor, 3), "Bayes predictor", "no predictor that does not know σ can be better on average"],
      ["ratio", known ? "–" : `${short(found.loss / found.floor, 3)} ×`, "loss / floor", "1 is the best that can exist"],
      ["unadjusted loss", short(found.unadjusted, 4), `oracle ${short(found.oracle, 4)}`, "half the mean squared error"],
      ["exploded", String(found.exploded), `of ${found.size.toLocaleString("en")}`, "contexts with a loss above 100 d"],
    ];
    element.replaceChildren(
      ...items.map(([name, value, more, title]) => h("div", { title }, h("dt", {}, name), h("dd", { "data-name": name }, value, h("small", {}, more)))),
    );
  };
  return { element, update };
}

export function explore(main, app) {
  const { store, engine, background, models } = app;
  const choice = modelChoice(store, models);
  const family = familyControl(store);
  const omegas = omegaControls(store);
  const problem = problemControls(store);
  const context = contextControls(store);
  const parts = [choice, family, omegas, problem, context];
  const head = headline();
  const cards = {
    points: card("points", "The examples, and the line or plane that the model fits", "Drag the examples, or move them with the arrow keys. The parameters of the model stay the same; the estimate *ŵ* is computed anew."),
    profile: card("profile", "Loss by noise level", "The band is the noise of the problem. The floor belongs to the whole distribution: at a single level another predictor can be below the Bayes predictor. × marks explosions."),
    layers: card("by-layer", "Loss by layer", "The loss if the prediction were read after this layer. A layer may raise it and still be needed."),
    path: card("path", "The estimate *ŵ* on one context", "Numbers are layers: *ŵ* moves from 0 towards the estimates of classical methods (crosses). The task is what produced the labels."),
    filters: card("filters", "Each layer as a filter", "How much of least squares the estimate keeps after each layer (numbers at the right), along a direction with the eigenvalue *s* of *S*. Dashed: ridge that knows σ. Ticks: the eigenvalues of this context."),
    eigenvalues: card("eigenvalues", "Eigenvalues of the context", "Drag them: features are stretched along an eigenvector of *S*, the noise stays."),
    explosions: card("explosions", "Where the model explodes", "Red: contexts with a loss above 100 *d*; the stronger the red, the more of them. Dashed: the typical largest eigenvalue. Ring: the context on this page."),
    ablations: card("ablations", "What breaks without a term", "The loss with one omega set to 0; the stronger the colour, the worse. Use the switches of the layers to look closer."),
  };
  const aside = h(
    "aside", { class: "panel", "aria-label": "controls" },
    h("fieldset", {}, h("legend", {}, "Model"), choice.element, family.element, omegas.element), problem.element, context.element,
  );
  cards.points.element.hidden = store.state.d > 2;
  main.replaceChildren(h("h1", { class: "hidden" }, "Explore"), h("div", { class: "work" }, aside, h("div", { class: "pictures" }, introduction(), head.element, Object.values(cards).map(({ element }) => element))));

  const pointHandles = new Handles(cards.points.frame, (i, p) => movePoint(store, i, p), { label: (_, i) => `example ${i + 1}` });
  const eigenHandles = new Handles(cards.eigenvalues.frame, (i, p) => moveEigenvalue(store, i, p), { axes: "y", step: 1, label: (_, i) => `eigenvalue ${i + 1}` });
  let largest = NaN; // eigenvalue of the context
  let scale = null; // of the chart of eigenvalues, which must not move under the pointer

  const showContext = (one, state) => {
    charts.path(cards.path.frame, one);
    charts.filters(cards.filters.frame, one, state.sigma);
    const top = Math.max(...one.spectrum.values);
    largest = top;
    if (!scale || top > 0.98 * scale || (top < 0.4 * scale && eigenHandles.dragged === null)) scale = 1.5 * top + 1;
    const chart = charts.eigenvalues(cards.eigenvalues.frame, one, scale);
    eigenHandles.place(chart, Array.from(one.spectrum.values, (y, i) => ({ x: i + 1, y })));
    cards.points.element.hidden = state.d > 2;
    if (state.d <= 2) points(cards.points.frame, pointHandles, one, state);
  };
  const slow = background.latest("pictures", ({ losses, explosions, ablations }, state) => {
    if (state === store.state) head.update(losses);
    charts.explosions(cards.explosions.frame, explosions, { eigenvalue: largest, sigma: state.sigma });
    charts.ablations(cards.ablations.frame, ablations, losses.loss);
    app.updated?.();
  });
  // What is quickest comes first, so that there is something to see at once.
  const fast = {
    context: engine.latest("context", showContext),
    losses: engine.latest("losses", (losses) => {
      head.update(losses);
      charts.byLayer(cards.layers.frame, losses);
    }),
    profile: engine.latest("profile", (found, state) => {
      charts.profile(cards.profile.frame, found, parseNoise(state.noise), state.sigma);
      app.updated?.();
    }),
  };
  const later = idle(350, (state) => slow(questions(state, true), state));
  const update = (state) => {
    parts.forEach((part) => part.update(state));
    const asked = questions(state, false);
    for (const [name, ask] of Object.entries(fast)) ask(asked[name], state);
    later(state);
  };
  return { update };
}

/** What a newcomer sees first. It stays closed once it was closed. */
function introduction() {
  const text = h("details", { class: "introduction", open: recall("introduction") !== false, ontoggle: () => keep("introduction", text.open) },
    h("summary", {}, "What is this?"),
    h("p", {}, rich("A linear transformer reads *n* examples (*x*, *y*) and predicts *y* for a new *x*. It was trained once. Its parameters, the numbers ω on this page, are fixed; what it learns from your examples, the estimate *ŵ*, it computes layer by layer while it runs. This page shows how good that is (the loss), how good it could be (the floor), and what each layer does. Move a slider and watch."), " ", h("a", { href: "#view=chapter-1" }, "New to this? Begin with chapter 1.")));
  return text;
}

function questions(state, thorough) {
  const { d, n, noise, sigma } = state;
  const omega = active(state);
  const top = Math.max(2, 1.6 * parseNoise(noise).upper);
  if (thorough) return { losses: { d, n, noise, omega, size: 16384 }, explosions: { d, n, omega, top }, ablations: { d, n, noise, omega } };
  return { losses: { d, n, noise, omega }, profile: { d, n, noise, omega, top }, context: { tokens: tokensOf(state), omega, noise, sigma } };
}

/** The examples of d = 1 as a scatter plot with a line, those of d = 2 as a map with level lines. */
export function points(frame, handles, one, state) {
  const tokens = tokensOf(state);
  const w = one.path.at(-1);
  if (state.d === 1) {
    const slopes = { model: w[0], least: one.estimates.least[0], bayes: one.estimates.bayes[0] };
    const chart = charts.line(frame, { tokens, slopes });
    handles.place(chart, tokens.x.map(([x], i) => ({ x, y: tokens.y[i] })));
  } else {
    const chart = charts.planeChart(frame, { tokens, w });
    handles.place(chart, tokens.x.map(([x, y]) => ({ x, y, color: "transparent" })));
  }
}

/** Move an example: both coordinates are (x, y) for d = 1 and (x1, x2) for d = 2, where the label keeps its noise. */
export function movePoint(store, index, { x, y }) {
  const { state } = store;
  const old = tokensOf(state);
  const tokens = { x: old.x.map((row) => [...row]), y: [...old.y], task: old.task };
  if (state.d === 1) {
    tokens.x[index] = [x];
    tokens.y[index] = y;
  } else {
    tokens.x[index] = [x, y];
  }
  store.change({ tokens });
}

function moveEigenvalue(store, index, { y }) {
  const tokens = tokensOf(store.state);
  const { d, n } = moments(tokens);
  store.change({ tokens: withEigenvalue(tokens, index + d - Math.min(n, d), Math.max(y, 0.01)) });
}

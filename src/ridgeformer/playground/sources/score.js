// The view "Beat the floor": set the omegas by hand, and see how close you come.

import * as charts from "./charts.js";
import { familyControl, omegaControls } from "./controls.js";
import { card, headline } from "./explore.js";
import { h, rich, say, short } from "./dom.js";
import { keep, recall } from "./memory.js";
import { parseNoise } from "./noise.js";
import { active } from "./state.js";

/** 100 is the floor, 0 is ridge regression with one penalty; below 0 it is worse than that. Logarithmic in between. */
export function points({ loss, floor, baselines }) {
  if (!(loss < 1e6)) return -Infinity;
  return Math.round((100 * Math.log(baselines.constant / loss)) / Math.log(baselines.constant / floor));
}

export function score(main, app) {
  const { store, engine, background, models } = app;
  const shipped = new Set(models.map(({ omega }) => JSON.stringify(omega)));
  const omegas = omegaControls(store);
  const family = familyControl(store);
  const head = headline();
  const profile = card("profile", "Loss by noise level", "Where do you lose most? The band is the noise of the problem.");
  const layers = card("by-layer", "Loss by layer", "What each layer contributes.");
  const now = h("output", { id: "score" }, "–");
  const best = h("output", { id: "best" }, "–");
  const restore = h("button", { type: "button", onclick: () => saved() && store.change({ omega: saved().omega, off: [] }) }, "Show my best");
  const fresh = h("button", { type: "button", onclick: () => store.change({ omega: [[0, 0, 0, 0], [0, 0, 0, 0]], off: [] }) }, "Start from nothing");
  const place = () => `best ${store.state.d} ${store.state.n} ${store.state.noise}`;
  const saved = () => recall(place());
  const aside = h(
    "aside", { class: "panel", "aria-label": "controls" },
    h("fieldset", {}, h("legend", {}, "Your model"), h("p", { class: "hint" }, rich("No training allowed: set the omegas by hand. 0 points are ridge regression with one penalty, 100 points are the floor, which nobody can beat. Begin with ω_{yx} of layer 1; a model without ω_{xy} and ω_{yy} cannot get above 0.")), family.element, omegas.element, h("div", { class: "buttons" }, fresh, restore)),
  );
  const rival = h("output", { id: "rival" }, "–");
  const rivalName = h("span", {});
  const board = h("div", { class: "score" }, h("div", {}, h("span", {}, "points"), now), h("div", {}, h("span", {}, "your best"), best), h("div", {}, rivalName, rival));
  main.replaceChildren(h("h1", { class: "hidden" }, "Beat the floor"), h("div", { class: "work" }, aside, h("div", { class: "pictures" }, board, head.element, profile.element, layers.element)));
  const ask = engine.latest("pictures", (found, state) => {
    head.update(found.losses);
    charts.profile(profile.frame, found.profile, parseNoise(state.noise));
    charts.byLayer(layers.frame, found.losses);
    const mine = points(found.losses);
    now.textContent = Number.isFinite(mine) ? String(mine) : "exploded";
    const own = !shipped.has(JSON.stringify(active(state)));
    if (own && Number.isFinite(mine) && mine > (saved()?.points ?? -Infinity)) {
      keep(place(), { points: mine, omega: active(state), loss: found.losses.loss });
      if (mine > 0) say(`New best: ${mine} points.`);
    }
    best.textContent = saved() ? `${saved().points} (loss ${short(saved().loss, 3)})` : "–";
    app.updated?.();
  });
  /** The points of the shipped model with as many layers: what training makes of them. */
  const compete = background.latest("losses", (found, { layers }) => {
    rivalName.textContent = `trained, ${layers} layer${layers > 1 ? "s" : ""}`;
    rival.textContent = String(points(found));
  });
  const update = (state) => {
    omegas.update(state);
    family.update(state);
    const { d, n, noise } = state;
    const omega = active(state);
    const question = { losses: { d, n, noise, omega, size: 4096 }, profile: { d, n, noise, omega, top: Math.max(2, 1.6 * parseNoise(noise).upper) } };
    ask(question, state);
    const trained = models.find((one) => one.d === d && one.n === n && one.noise === noise && one.family === state.family && one.omega.length === omega.length);
    [rivalName, rival].forEach((element) => (element.hidden = !trained));
    if (trained) compete({ d, n, noise, omega: trained.omega, size: 4096, layers: omega.length });
  };
  return { update };
}

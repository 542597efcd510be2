// The controls of problem, model and context. Each has `element` and `update(state)`.

import { drawTokens } from "./contexts.js";
import { readCSV } from "./csv.js";
import { h, rich, say, short } from "./dom.js";
import { parseNoise } from "./noise.js";
import { LIMITS, TERMS } from "./state.js";
import { units } from "./training.js";

/** A labelled slider with its number beside it. `onInput` is told the number. */
export function slider({ id, label, min, max, step, value, onInput, format = (x) => short(x, 3), marks = [] }) {
  const number = h("output", { for: id, class: "number" }, format(value));
  const list = marks.length ? h("datalist", { id: `${id}-marks` }, marks.map((mark) => h("option", { value: mark }))) : null;
  const input = h("input", {
    type: "range", id, min, max, step, value, list: list ? list.id : null,
    "aria-valuetext": format(value),
    oninput: () => {
      show(Number(input.value));
      onInput(Number(input.value));
    },
  });
  input.value = value;
  const show = (x) => {
    number.textContent = format(x);
    input.setAttribute("aria-valuetext", format(x));
  };
  const element = h("div", { class: "slider" }, h("label", { for: id }, rich(label)), input, number, list);
  return {
    element,
    input,
    update: (x) => {
      if (document.activeElement !== input) input.value = x;
      show(x);
    },
  };
}

/** d, n and the noise. */
export function problemControls(store) {
  const { state } = store;
  const change = (part) => store.change({ tokens: null, ...part });
  const d = slider({ id: "d", label: "features d", min: 1, max: LIMITS.d[1], step: 1, value: state.d, format: String, onInput: (x) => change({ d: x }) });
  const n = slider({ id: "n", label: "examples n", min: 1, max: LIMITS.n[1], step: 1, value: state.n, format: String, onInput: (x) => change({ n: x }) });
  const message = h("p", { class: "error", role: "alert" });
  const noise = h("input", {
    id: "noise", value: state.noise, spellcheck: "false", list: "noises",
    onchange: () => {
      try {
        store.change({ noise: parseNoise(noise.value).toString() });
        message.textContent = "";
      } catch (error) {
        message.textContent = error.message;
      }
    },
  });
  const known = ["uniform(0,5)", "uniform(0,2)", "categorical(1,3)", "categorical(1,3,5)", "fixed(0)", "fixed(2)"];
  const element = h(
    "fieldset", {}, h("legend", {}, "Problem"), d.element, n.element,
    h("div", { class: "field" }, h("label", { for: "noise" }, "noise level σ"), noise),
    h("datalist", { id: "noises" }, known.map((value) => h("option", { value }))), message,
  );
  const update = (now) => {
    d.update(now.d);
    n.update(now.n);
    if (document.activeElement !== noise) noise.value = now.noise;
  };
  return { element, update };
}

/** The shipped models as a list to choose from. */
export function modelChoice(store, models) {
  const groups = Map.groupBy ? Map.groupBy(models, group) : grouped(models);
  const select = h(
    "select", {
      id: "shipped",
      onchange: () => {
        const model = models[Number(select.value)];
        if (!model) return;
        const { family, d, n, noise, omega } = model;
        store.change({ family, d, n, noise, omega: structuredClone(omega), off: [], tokens: null });
        say(`Model ${model.name}`);
      },
    },
    h("option", { value: "" }, "your own"),
    [...groups].map(([name, list]) =>
      h("optgroup", { label: name }, list.map((model) => h("option", { value: models.indexOf(model) }, model.short))),
    ),
  );
  const update = ({ omega, d, n, noise, off }) => {
    const text = JSON.stringify(omega);
    const same = models.findIndex((m) => m.d === d && m.n === n && m.noise === noise && !off.length && JSON.stringify(m.omega) === text);
    select.value = same < 0 ? "" : same;
  };
  return { element: h("div", { class: "field" }, h("label", { for: "shipped" }, "trained model"), select), update };
}

const group = ({ d, n, noise }) => `${noise}, d = ${d}, n = ${n}`;
function grouped(models) {
  const groups = new Map();
  for (const model of models) groups.set(group(model), [...(groups.get(group(model)) ?? []), model]);
  return groups;
}

const HINTS = {
  xx: "features change features: stretches the eigenvalues of S",
  xy: "labels change features",
  yx: "features change labels: a step towards the examples",
  yy: "labels change labels: reads the noise",
};

/** The omegas of every layer: a slider, a number and a switch for each. */
export function omegaControls(store, { only = null, layers: fixed = false } = {}) {
  const body = h("div", { class: "layers" });
  let shape = "";
  let rows = [];
  const set = (l, i, value) => {
    const omega = store.state.omega.map((layer) => [...layer]);
    omega[l][i] = value;
    store.change({ omega });
  };
  const toggle = (name) => {
    const { off } = store.state;
    store.change({ off: off.includes(name) ? off.filter((one) => one !== name) : [...off, name] });
  };
  const build = (state) => {
    rows = [];
    const sizes = units({ d: state.d, n: state.n, noise: parseNoise(state.noise) });
    const terms = only ?? (state.family === "gdpp" ? ["xx", "yx"] : TERMS);
    body.replaceChildren(
      ...state.omega.map((layer, l) => {
        const list = terms.map((term) => row(l, term, layer[TERMS.indexOf(term)], sizes[TERMS.indexOf(term)]));
        rows.push(...list);
        const remove = fixed || state.omega.length === 1 ? null : h("button", { class: "plain", type: "button", "aria-label": `remove layer ${l + 1}`, onclick: () => removeLayer(l) }, "remove");
        return h("section", { class: "layer", "aria-label": `layer ${l + 1}` }, h("h4", {}, `Layer ${l + 1}`, remove), list.map(({ element }) => element));
      }),
    );
  };
  const removeLayer = (l) => {
    const { omega, off } = store.state;
    const places = off.map((name) => name.split(".")).filter(([layer]) => Number(layer) !== l + 1);
    const moved = places.map(([layer, term]) => `${Number(layer) > l + 1 ? layer - 1 : layer}.${term}`);
    store.change({ omega: omega.filter((_, k) => k !== l), off: moved });
    say(`Layer ${l + 1} removed.`);
  };
  const row = (l, term, value, unit) => {
    const i = TERMS.indexOf(term);
    const id = `omega-${l + 1}-${term}`;
    const top = Math.max(2 * unit, 1.6 * Math.abs(value));
    const switchOff = h("button", {
      class: "switch", type: "button", title: "switch this term off and see what breaks", "aria-label": `switch ${term} of layer ${l + 1} off`,
      "aria-pressed": "false", onclick: () => toggle(`${l + 1}.${term}`),
    }, "off");
    const range = h("input", {
      type: "range", id, min: -top, max: top, step: "any", value, title: HINTS[term], "aria-valuetext": short(value, 4),
      oninput: () => set(l, i, Number(Number(range.value).toPrecision(4))),
    });
    range.value = value;
    const number = h("input", {
      type: "number", step: "any", value: String(Number(value.toPrecision(4))), "aria-label": `omega ${term} of layer ${l + 1} as a number`,
      onchange: () => Number.isFinite(number.valueAsNumber) && set(l, i, number.valueAsNumber),
    });
    const element = h("div", { class: "omega" }, h("label", { for: id, title: HINTS[term] }, "ω", h("sub", {}, term)), range, number, only ? null : switchOff);
    const update = ({ omega, off }) => {
      const now = omega[l][i];
      const isOff = off.includes(`${l + 1}.${term}`);
      if (Math.abs(now) > Number(range.max)) [range.min, range.max] = [-1.6 * Math.abs(now), 1.6 * Math.abs(now)];
      if (document.activeElement !== range) range.value = now;
      range.setAttribute("aria-valuetext", short(now, 4));
      if (document.activeElement !== number) number.value = String(Number(now.toPrecision(4)));
      element.classList.toggle("isoff", isOff);
      switchOff.setAttribute("aria-pressed", String(isOff));
    };
    return { element, update };
  };
  const add = h("button", {
    type: "button",
    onclick: () => {
      if (store.state.omega.length >= LIMITS.layers) return;
      store.change({ omega: [...store.state.omega, [0, 0, 0, 0]] });
      say("Layer added.");
    },
  }, "Add a layer");
  const update = (state) => {
    const now = `${state.omega.length} ${state.family} ${state.d} ${state.n} ${state.noise}`;
    if (now !== shape) build(state);
    shape = now;
    rows.forEach((one) => one.update(state));
    add.disabled = state.omega.length >= LIMITS.layers;
  };
  return { element: h("div", {}, body, fixed ? null : add), update };
}

/** The family of the model. GD++ has no flow out of y. */
export function familyControl(store) {
  const select = h("select", {
    id: "family",
    onchange: () => {
      const omega = store.state.omega.map(([xx, xy, yx, yy]) => (select.value === "gdpp" ? [xx, 0, yx, 0] : [xx, xy, yx, yy]));
      store.change({ family: select.value, omega, off: [] });
    },
  }, h("option", { value: "diag" }, "Diag: four omegas per layer"), h("option", { value: "gdpp" }, "GD++: xx and yx only"));
  return { element: h("div", { class: "field" }, h("label", { for: "family" }, "family"), select), update: ({ family }) => (select.value = family) };
}

/** The one context that pictures show: its noise, another one, or a table of one's own. */
export function contextControls(store) {
  const sigma = slider({ id: "sigma", label: "its noise level σ", min: 0, max: 10, step: 0.1, value: store.state.sigma, onInput: (x) => store.change({ sigma: x, tokens: null }) });
  const message = h("p", { class: "error", role: "alert" });
  const file = h("input", {
    type: "file", id: "csv", accept: ".csv,text/csv,text/plain",
    onchange: async () => {
      try {
        const tokens = readCSV(await file.files[0].text(), scale.checked);
        store.change({ tokens, d: tokens.x[0].length, n: tokens.y.length });
        message.textContent = "";
        say("The table is the context now.");
      } catch (error) {
        message.textContent = error.message;
      }
      file.value = "";
    },
  });
  const scale = h("input", { type: "checkbox", id: "scale", checked: true });
  const again = h("button", { type: "button", onclick: () => store.change({ seed: store.state.seed + 1, tokens: null }) }, "Another context");
  const element = h(
    "fieldset", {}, h("legend", {}, "One context"), sigma.element, again,
    h("div", { class: "field" }, h("label", { for: "csv" }, "your own table (CSV: the columns of x, then y)"), file, h("label", { for: "scale" }, scale, " centre and scale its columns, as in training")), message,
  );
  return { element, update: (state) => sigma.update(state.sigma) };
}

/** The tokens of the context that is shown. */
export const tokensOf = (state) => state.tokens ?? drawTokens(state);

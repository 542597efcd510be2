// The whole state of the page, and its text in the address: #view=explore&d=10&n=20&noise=uniform(0,5)&omega=...
//
// Python reads the same text: see ../__init__.py.

import { parseNoise } from "./noise.js";

export const TERMS = ["xx", "xy", "yx", "yy"];
export const LIMITS = { d: [1, 20], n: [1, 100], layers: 10, seed: 2 ** 31 - 1 };
export const DEFAULTS = {
  view: "explore",
  d: 10,
  n: 20,
  noise: "uniform(0,5)",
  family: "diag",
  omega: [[0, 0, -0.03, 0]],
  off: [], // of "layer.term", such as "2.xy"
  seed: 1,
  sigma: 2, // noise level of the one context that is shown
  tokens: null, // a context that was edited or uploaded; otherwise it is drawn from the seed
  train: { optimiser: "quasi-newton", layers: 4, family: "diag", rate: 0.02, seed: 1 },
  values: {}, // controls of a chapter
  bare: false, // without the header, for other pages that embed this one
};

/** The omegas as the model uses them: terms that are switched off are 0. */
export function active({ omega, off }) {
  return omega.map((layer, l) => layer.map((value, i) => (off.includes(`${l + 1}.${TERMS[i]}`) ? 0 : value)));
}

const numbers = (text) => text.split(",").map(Number);
const clean = (text) => encodeURIComponent(text).replace(/%2C/g, ",").replace(/%3B/g, ";").replace(/%3A/g, ":").replace(/%2F/g, "/");

/** The state as the text after # in the address. What has its default value is left out, except for the model. */
export function toAddress(state) {
  const given = new Map([["view", state.view]]);
  for (const name of ["d", "n", "noise", "family"]) given.set(name, state[name]);
  given.set("omega", state.omega.map((layer) => layer.join(",")).join(";"));
  if (state.off.length) given.set("off", state.off.join(","));
  for (const name of ["seed", "sigma"]) if (state[name] !== DEFAULTS[name]) given.set(name, state[name]);
  if (state.tokens) {
    const row = (x, y) => [...x, y].map((value) => Number(value.toPrecision(12))).join(",");
    given.set("context", state.tokens.x.map((x, t) => row(x, state.tokens.y[t])).join(";"));
    if (state.tokens.task) given.set("task", state.tokens.task.map((value) => Number(value.toPrecision(12))).join(","));
  }
  for (const [name, value] of Object.entries(state.train))
    if (value !== DEFAULTS.train[name]) given.set(`train.${name}`, value);
  const values = Object.entries(state.values).map(([name, value]) => `${name}:${value}`);
  if (values.length) given.set("set", values.join(","));
  if (state.bare) given.set("bare", 1);
  return [...given].map(([name, value]) => `${name}=${clean(String(value))}`).join("&");
}

/** The state that an address stands for; throws an Error that says what is wrong. */
export function fromAddress(text) {
  const given = new URLSearchParams(text.replace(/^#/, "").replaceAll("+", "%2B"));
  const state = structuredClone(DEFAULTS);
  for (const name of ["view", "noise", "family"]) if (given.has(name)) state[name] = given.get(name);
  for (const name of ["d", "n", "seed", "sigma"]) if (given.has(name)) state[name] = Number(given.get(name));
  for (const [name, value] of given)
    if (name.startsWith("train.")) {
      const key = name.slice(6);
      state.train[key] = typeof DEFAULTS.train[key] === "number" ? Number(value) : value;
    }
  if (given.has("omega")) state.omega = given.get("omega").split(";").map(numbers);
  if (given.get("off")) state.off = given.get("off").split(",");
  if (given.has("context")) {
    const rows = given.get("context").split(";").map(numbers);
    const task = given.has("task") ? numbers(given.get("task")) : null;
    state.tokens = { x: rows.map((row) => row.slice(0, -1)), y: rows.map((row) => row.at(-1)), task };
  }
  for (const pair of (given.get("set") ?? "").split(",").filter(Boolean)) {
    const [name, value] = pair.split(":");
    state.values[name] = Number(value);
  }
  state.bare = given.has("bare");
  check(state);
  return { state, complete: given.has("omega"), given };
}

/** Throws if a state cannot be shown. */
export function check(state) {
  const whole = (name, [low, high]) => {
    if (!Number.isInteger(state[name]) || state[name] < low || state[name] > high)
      throw new Error(`${name} must be a whole number from ${low} to ${high}; got ${state[name]}.`);
  };
  whole("d", LIMITS.d);
  whole("n", LIMITS.n);
  whole("seed", [0, LIMITS.seed]);
  parseNoise(state.noise);
  if (!(state.sigma >= 0 && state.sigma <= 100)) throw new Error(`sigma must be between 0 and 100; got ${state.sigma}.`);
  if (!["diag", "gdpp"].includes(state.family)) throw new Error(`family must be diag or gdpp; got ${state.family}.`);
  const { omega } = state;
  if (!omega.length || omega.length > LIMITS.layers) throw new Error(`a model must have 1 to ${LIMITS.layers} layers; got ${omega.length}.`);
  if (!omega.every((layer) => layer.length === 4 && layer.every(Number.isFinite)))
    throw new Error("every layer must have four finite omegas: xx, xy, yx, yy.");
  if (state.tokens && !state.tokens.x.every((row) => row.length === state.d && row.every(Number.isFinite)))
    throw new Error(`every example of the context must have ${state.d} features and a label.`);
}

/** A state that can be watched. `change` merges, checks, writes the address and tells everybody. */
export class Store {
  constructor(state) {
    this.state = state;
    this.watchers = new Set();
    this.timer = null;
  }
  change(part) {
    this.state = { ...this.state, ...part };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), 150);
    for (const watcher of this.watchers) watcher(this.state, part);
  }
  write() {
    clearTimeout(this.timer);
    const text = `#${toAddress(this.state)}`;
    if (location.hash !== text) history.replaceState(null, "", text);
  }
  get address() {
    return toAddress(this.state);
  }
}

// Every picture of the page, drawn by Observable Plot. Colours are the variables of style.css.

import { short } from "./dom.js";

export const { Plot } = globalThis; // the script built from plot.js comes before this one

export const METHODS = {
  model: { label: "model", color: "var(--model)" },
  bayes: { label: "Bayes predictor", color: "var(--bayes)" },
  constant: { label: "ridge, one penalty", color: "var(--constant)" },
  adaptive: { label: "ridge, estimated noise", color: "var(--adaptive)" },
  least: { label: "least squares", color: "var(--least)" },
  oracle: { label: "ridge that knows σ", color: "var(--oracle)" },
  task: { label: "task", color: "var(--ink)" },
};
const label = (name) => METHODS[name]?.label ?? name;
const positive = (value) => (value > 0 && Number.isFinite(value) ? value : NaN);

/** The width that a chart may have in its frame. */
const widthOf = (frame) => Math.max(260, Math.min(980, frame.clientWidth || 480));

/** The picture itself: a chart with a legend has further elements. */
export const pictureOf = (chart) => (chart.tagName === "svg" ? chart : chart.querySelector(":scope > svg:last-of-type"));

/** Draw a chart into a frame, in place of the one before, and return it. */
export function draw(frame, options, description) {
  const chart = Plot.plot({
    width: widthOf(frame),
    height: options.height ?? Math.min(300, Math.round(0.62 * widthOf(frame))),
    marginTop: 30,
    marginLeft: 52,
    marginBottom: 40,
    marginRight: 16,
    style: { background: "none", color: "var(--ink)", fontSize: "12px", fontFamily: "inherit", overflow: "visible" },
    ...options,
  });
  const svg = pictureOf(chart);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", description);
  const old = frame.querySelector(":scope > .chart");
  chart.classList.add("chart");
  if (old) old.replaceWith(chart);
  else frame.prepend(chart);
  return chart;
}

const grid = { grid: true };
const logAxis = (values, text, least = 1e-6) => {
  const given = values.filter((value) => value > 0 && Number.isFinite(value));
  const top = Math.min(Math.max(...given, 1e-3), 1e6);
  const domain = [0.85 * Math.max(Math.min(...given, top / 10), least), 1.15 * top];
  return { type: "log", label: text, domain, ...grid, ticks: decades(domain), tickFormat: (value) => short(value, 2) };
};
const within = ({ domain: [low, high] }) => ({ loss }) => loss >= low && loss <= high;
/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 or 3 between them where there is room. */
function decades([low, high]) {
  const wide = Math.log10(high / low);
  const steps = wide > 3 ? [1] : wide > 1.4 ? [1, 3] : [1, 2, 5];
  const powers = Array.from({ length: Math.ceil(wide) + 2 }, (_, i) => Math.floor(Math.log10(low)) + i);
  return powers.flatMap((power) => steps.map((step) => Number(`${step}e${power}`))).filter((value) => value >= low && value <= high);
}
const colors = (names) => ({ domain: names.map(label), range: names.map((name) => METHODS[name].color), legend: true });

/** Loss by noise level, beside the baselines. */
export function profile(frame, { rows, model }, noise, level = null) {
  const names = ["model", "bayes", "constant", "adaptive", "least"];
  const all = [...rows, ...model].filter(({ loss }) => positive(loss)).map((row) => ({ ...row, method: label(row.name) }));
  const shown = all.filter(({ name }) => names.includes(name));
  const [low, high] = [Math.min(...noise.numbers), noise.upper];
  const bad = model.filter((row) => row.exploded > 0);
  const axis = logAxis([...shown.filter(({ name }) => name !== "least" && name !== "model").map(({ loss }) => loss), ...model.map(({ loss }) => Math.min(loss, 100))], "adjusted loss", 3e-3);
  return draw(
    frame,
    {
      x: { label: "noise level σ", ...grid },
      y: axis,
      color: colors(names),
      marks: [
        noise.kind === "uniform"
          ? Plot.rectX([{}], { x1: low, x2: high, fill: "var(--band)" })
          : Plot.ruleX(noise.numbers, { stroke: "var(--band)", strokeWidth: 6 }),
        Plot.ruleX(level === null ? [] : [level], { stroke: "var(--ink)", strokeOpacity: 0.6 }),
        Plot.line(shown, { x: "sigma", y: "loss", stroke: "method", z: "name", strokeWidth: (row) => (row.name === "model" ? 3 : 1.6), clip: true }),
        Plot.text(bad, { x: "sigma", y: (row) => Math.min(row.loss, axis.domain[1]), text: () => "×", fill: "var(--bad)", fontSize: 18 }),
        Plot.tip(shown.filter(within(axis)), Plot.pointer({ x: "sigma", y: "loss", title: (row) => `${row.method}\nσ = ${short(row.sigma, 3)}\nloss ${short(row.loss)}` })),
      ],
    },
    `Adjusted loss by noise level. The model: ${model.map((row) => `${short(row.loss, 2)} at ${short(row.sigma, 2)}`).join(", ")}.`,
  );
}

/** The loss of the readout after every layer. */
export function byLayer(frame, { byLayer: rows, floor, baselines }) {
  const shown = rows.filter(({ loss }) => positive(loss));
  const lines = [
    { name: "floor", loss: floor, color: "var(--bayes)" },
    { name: "ridge, one penalty", loss: baselines.constant, color: "var(--constant)" },
  ].filter(({ loss }) => loss > 1e-15);
  const axis = logAxis([...shown, ...lines].map(({ loss }) => loss), "adjusted loss");
  return draw(
    frame,
    {
      x: { label: "layer", ticks: rows.map(({ layer }) => layer), tickFormat: "d", domain: [0, rows.length - 1 || 1] },
      y: axis,
      marks: [
        Plot.ruleY(lines, { y: "loss", stroke: "color", strokeDasharray: "5 4", strokeWidth: 1.6 }),
        Plot.text(lines, { x: 0, y: "loss", text: "name", dy: -7, dx: 4, textAnchor: "start", fill: "color" }),
        Plot.line(shown, { x: "layer", y: "loss", stroke: "var(--model)", strokeWidth: 2.4, clip: true }),
        Plot.dot(shown.filter(within(axis)), { x: "layer", y: "loss", fill: "var(--model)", r: 4.5 }),
        Plot.tip(shown.filter(within(axis)), Plot.pointer({ x: "layer", y: "loss", title: (row) => `after layer ${row.layer}\nloss ${short(row.loss)}` })),
      ],
    },
    `Adjusted loss after every layer: ${rows.map((row) => short(row.loss, 3)).join(", ")}. Floor ${short(floor, 3)}.`,
  );
}

/** The estimate w after every layer, in the plane that shows most of it, beside the estimates of others. */
export function path(frame, { path: steps, estimates, task }) {
  const names = ["least", "constant", "bayes", "oracle"];
  const { project, labels } = plane([...names.map((name) => estimates[name]), steps.at(-1)], steps[0].length);
  const points = steps.map((w, layer) => ({ ...project(w), layer }));
  const others = names.map((name) => ({ ...project(estimates[name]), name, method: label(name) }));
  if (task) others.push({ ...project(task), name: "task", method: label("task") });
  const extent = Math.max(...others.flatMap(({ x, y }) => [Math.abs(x), Math.abs(y)]), 0.5) * 1.6;
  const inside = points.filter(({ x, y }) => Math.hypot(x, y) < 50 * extent);
  const span = (key) => {
    const values = [...others, ...inside.filter((point) => Math.abs(point[key]) < extent), { x: 0, y: 0 }].map((point) => point[key]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = 0.15 * (high - low) + 0.1;
    return [low - room, high + room];
  };
  const listed = [...names, ...(task ? ["task"] : [])];
  const domains = { x: span("x"), y: span("y") };
  const near = (point, key, share) => Math.abs(point[key]) < share * (domains[key][1] - domains[key][0]);
  const named = inside.filter((point) => point.layer === 0 || !near(point, "x", 0.02) || !near(point, "y", 0.06)); // one number at 0
  return draw(
    frame,
    {
      x: { label: labels[0], domain: domains.x, ...grid },
      y: { label: labels[1], domain: domains.y, ...grid, axis: steps[0].length > 1 ? "left" : null },
      color: colors(listed),
      clip: true,
      marks: [
        Plot.line(inside, { x: "x", y: "y", stroke: "var(--model)", strokeWidth: 2, clip: true }),
        Plot.dot(inside, { x: "x", y: "y", fill: "var(--model)", r: 4, clip: true }),
        Plot.text(named, { x: "x", y: "y", text: "layer", dy: -11, fill: "var(--model)", fontWeight: 600, clip: true }),
        Plot.dot(others, { x: "x", y: "y", stroke: "method", symbol: "times", r: 6, strokeWidth: 2.5 }),
        Plot.tip([...others, ...inside], Plot.pointer({ x: "x", y: "y", title: (p) => p.method ?? `the estimate after layer ${p.layer}` })),
      ],
    },
    `The estimate ŵ after every layer: distance to the ridge solution ${steps.map((w) => short(distance(w, estimates.oracle), 3)).join(", ")}.`,
  );
}

const distance = (a, b) => Math.sqrt(a.reduce((sum, x, i) => sum + (x - b[i]) ** 2, 0));

/** Coordinates of a plane: those of w itself where d is 1 or 2, otherwise along least squares and across it. */
function plane(vectors, d) {
  if (d === 1) return { project: (w) => ({ x: w[0], y: 0 }), labels: ["ŵ", ""] };
  if (d === 2) return { project: (w) => ({ x: w[0], y: w[1] }), labels: ["w₁", "w₂"] };
  const inner = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const unit = (a) => {
    const size = Math.sqrt(inner(a, a)) || 1;
    return a.map((x) => x / size);
  };
  const first = unit(vectors[0]);
  const rest = vectors.slice(1).map((w) => w.map((x, i) => x - inner(w, first) * first[i]));
  const finite = rest.filter((w) => w.every(Number.isFinite));
  const second = unit(finite.sort((a, b) => inner(b, b) - inner(a, a))[0] ?? vectors[0].map(() => 0));
  return { project: (w) => ({ x: inner(w, first), y: inner(w, second) }), labels: ["along least squares", "across it"] };
}

/** Each layer as a filter: what it does to a component of least squares, by its eigenvalue. */
export function filters(frame, { filters: curves, spectrum }, sigma) {
  const layers = Math.max(...curves.map(({ layer }) => layer), 1);
  const top = Math.max(...curves.map(({ eigenvalue }) => eigenvalue), 1);
  const ridge = Array.from({ length: 80 }, (_, i) => (top * (i + 0.5)) / 80).map((s) => ({ eigenvalue: s, gain: s / (s + sigma * sigma) }));
  const shown = curves.filter(({ gain }) => Math.abs(gain) < 50);
  return draw(
    frame,
    {
      x: { label: "eigenvalue s of S", ...grid },
      y: { label: "estimate / least squares", domain: [-0.25, 1.6], ...grid },
      color: { type: "linear", domain: [0, layers], range: ["var(--faint)", "var(--model)"], label: "layer" },
      marks: [
        Plot.ruleY([1], { stroke: "var(--least)", strokeDasharray: "2 3" }),
        Plot.line(ridge, { x: "eigenvalue", y: "gain", stroke: "var(--oracle)", strokeWidth: 2, strokeDasharray: "6 4" }),
        Plot.line(shown, { x: "eigenvalue", y: "gain", z: "layer", stroke: "var(--model)", strokeOpacity: (row) => 0.15 + (0.85 * row.layer) / layers, strokeWidth: (row) => (row.layer === layers ? 3 : 1.5), clip: true }),
        Plot.text(lastOf(shown, layers), { x: "eigenvalue", y: "place", text: "layer", dx: 6, textAnchor: "start", fill: "var(--model)", fontWeight: 600 }),
        Plot.ruleX(Array.from(spectrum.values), { y1: -0.25, y2: -0.18, stroke: "var(--ink)", strokeWidth: 2 }),
        Plot.tip(shown, Plot.pointer({ x: "eigenvalue", y: "gain", title: (row) => `layer ${row.layer}\ns = ${short(row.eigenvalue, 3)}\nfactor ${short(row.gain, 3)}` })),
      ],
    },
    `Each layer as a filter. Ridge regression with the true noise level is dashed.`,
  );
}

/** Where the curve of every layer ends, with places for the labels that do not overlap. */
function lastOf(curves, layers) {
  const ends = Array.from({ length: layers }, (_, l) => curves.filter((row) => row.layer === l + 1 && row.gain > -0.25 && row.gain < 1.6).at(-1)).filter(Boolean);
  let below = -Infinity;
  return ends.sort((a, b) => a.gain - b.gain).map((row) => ({ ...row, place: (below = Math.max(row.gain, below + 0.13)) }));
}

/** The eigenvalues of S of the context. */
export function eigenvalues(frame, { spectrum }, top) {
  const rows = Array.from(spectrum.values, (value, i) => ({ index: i + 1, value }));
  return draw(
    frame,
    {
      x: { label: "direction", ticks: rows.length, tickFormat: "d", domain: [0.5, rows.length + 0.5] },
      y: { label: "eigenvalue s of S", domain: [0, top], ...grid },
      marks: [Plot.ruleX(rows, { x: "index", y: "value", stroke: "var(--model)", strokeWidth: 3 }), Plot.ruleY([0])],
    },
    `Eigenvalues of S: ${rows.map(({ value }) => short(value, 3)).join(", ")}.`,
  );
}

/** The map of explosions. */
export function explosions(frame, { cells, typical }, at) {
  const [dx, dy] = [step(cells, "eigenvalue"), step(cells, "sigma")];
  const bad = cells.filter(({ share }) => share > 0);
  return draw(
    frame,
    {
      x: { label: "largest eigenvalue of S", domain: reach(cells, "eigenvalue", dx) },
      y: { label: "noise level σ", domain: reach(cells, "sigma", dy), clamp: true },
      marks: [
        Plot.rect(cells, { x1: (c) => c.eigenvalue - dx / 2, x2: (c) => c.eigenvalue + dx / 2, y1: (c) => c.sigma - dy / 2, y2: (c) => c.sigma + dy / 2, fill: "var(--safe)", inset: 0.5 }),
        Plot.rect(bad, { x1: (c) => c.eigenvalue - dx / 2, x2: (c) => c.eigenvalue + dx / 2, y1: (c) => c.sigma - dy / 2, y2: (c) => c.sigma + dy / 2, fill: "var(--bad)", fillOpacity: (c) => 0.25 + 0.75 * c.share, inset: 0.5 }),
        Plot.ruleX([typical], { stroke: "var(--ink)", strokeDasharray: "4 3" }),
        Plot.text([typical], { x: (x) => x, frameAnchor: "top", text: () => "typical", dy: -12, fill: "var(--ink)" }),
        Plot.dot(at ? [at] : [], { x: "eigenvalue", y: "sigma", stroke: "var(--ink)", fill: "var(--card)", r: 5, strokeWidth: 2 }),
        Plot.tip(cells, Plot.pointer({ x: "eigenvalue", y: "sigma", title: (c) => `eigenvalue ${short(c.eigenvalue, 3)}, σ = ${short(c.sigma, 3)}\n${Math.round(100 * c.share)} % explode` })),
      ],
    },
    `Explosions: ${bad.length} of ${cells.length} cells have contexts on which the loss is above 100 d.`,
  );
}

const reach = (cells, key, width) => [Math.min(...cells.map((cell) => cell[key])) - width / 2, Math.max(...cells.map((cell) => cell[key])) + width / 2];
const step = (cells, key) => {
  const values = [...new Set(cells.map((cell) => cell[key]))].sort((a, b) => a - b);
  return values[1] - values[0];
};

/** The loss without each term, as a table of squares. */
export function ablations(frame, rows, loss) {
  const terms = ["xx", "xy", "yx", "yy"];
  const shown = rows.map((row) => ({ ...row, name: terms[row.term], ratio: Math.max(row.loss / loss, 1e-3) }));
  return draw(
    frame,
    {
      height: 60 + 34 * Math.max(...rows.map(({ layer }) => layer), 1),
      x: { domain: terms, label: "term that is switched off", axis: "top" },
      y: { label: "layer", domain: [...new Set(shown.map(({ layer }) => layer))], tickFormat: "d" },
      marginTop: 46,
      marginBottom: 12,
      marks: [
        Plot.cell(shown, { x: "name", y: "layer", fill: "var(--bad)", fillOpacity: (row) => Math.min(0.7, 0.06 + 0.2 * Math.max(0, Math.log10(row.ratio))), inset: 1.5, rx: 4 }),
        Plot.text(shown, { x: "name", y: "layer", text: (row) => short(row.loss, 3), fill: "var(--ink)" }),
      ],
    },
    `Loss without each term: ${shown.map((row) => `layer ${row.layer} ${row.name} ${short(row.loss, 3)}`).join(", ")}.`,
  );
}

/** One feature: the examples, the line of the model, and other lines. */
export function line(frame, { tokens, slopes }) {
  const edge = 3.2;
  const names = Object.keys(slopes);
  const ends = (name) => [-edge, edge].map((x) => ({ x, y: slopes[name] * x, method: label(name) }));
  const dashes = { strokeWidth: 2, strokeDasharray: "4 12" }; // where lines are one, the dashes of one are between those of the other, and the model shows through
  return draw(
    frame,
    {
      height: 380,
      x: { label: "x", domain: [-edge, edge], ...grid },
      y: { label: "y", domain: [-6, 6], ...grid },
      color: colors(names),
      marks: [
        Plot.ruleY([0], { strokeOpacity: 0.3 }),
        Plot.ruleX([0], { strokeOpacity: 0.3 }),
        ...names.map((name, i) => Plot.line(ends(name), { x: "x", y: "y", stroke: "method", ...(name === "model" ? { strokeWidth: 4.5 } : { ...dashes, strokeDashoffset: 8 * (i % 2) }), clip: true })),
        Plot.dot([slopes.model], { x: () => 1, y: (w) => w, r: 8, stroke: "var(--model)", strokeWidth: 2.5, clip: true }),
      ],
    },
    `${tokens.y.length} examples and lines through the origin: ${names.map((name) => `${label(name)} ${short(slopes[name], 3)}`).join(", ")}.`,
  );
}

/** Two features: where the examples are, their labels as colours, and the plane of the model as level lines. */
export function planeChart(frame, { tokens, w }) {
  const edge = 3.2;
  const size = Math.hypot(w[0], w[1]) || 1e-9;
  const levels = Array.from({ length: 13 }, (_, i) => i - 6);
  const across = [-w[1] / size, w[0] / size];
  const lines = levels.map((level) => {
    const at = [(level * w[0]) / size ** 2, (level * w[1]) / size ** 2];
    return { level, x1: at[0] - 9 * across[0], y1: at[1] - 9 * across[1], x2: at[0] + 9 * across[0], y2: at[1] + 9 * across[1] };
  });
  return draw(
    frame,
    {
      aspectRatio: 1,
      height: undefined,
      x: { label: "x₁", domain: [-edge, edge], ...grid },
      y: { label: "x₂", domain: [-edge, edge], ...grid },
      color: { type: "diverging", domain: [-5, 5], scheme: "PuOr", label: "label y, and what the model predicts", legend: true },
      marks: [
        Plot.link(size > 1e-6 ? lines : [], { x1: "x1", y1: "y1", x2: "x2", y2: "y2", stroke: "level", strokeWidth: 2, clip: true }),
        Plot.dot(tokens.x, { x: (row) => row[0], y: (row) => row[1], fill: (_, i) => tokens.y[i], r: 9, stroke: "var(--ink)" }),
        Plot.text(tokens.x, { x: (row) => row[0], y: (row) => row[1], text: (_, i) => short(tokens.y[i], 2), dy: -15, stroke: "var(--paper)", strokeWidth: 4, fill: "var(--ink)" }),
      ],
    },
    `${tokens.y.length} examples with two features; level lines of the plane with the slopes ${short(w[0], 3)} and ${short(w[1], 3)}.`,
  );
}

/** The loss during training. */
export function training(frame, curve, floor) {
  const thin = curve.length > 1200 ? curve.filter((_, i) => i % Math.ceil(curve.length / 1200) === 0 || i === curve.length - 1) : curve;
  const shown = thin.filter(({ loss }) => positive(loss));
  const lines = floor > 1e-15 ? [{ loss: floor }] : [];
  let least = Infinity;
  const best = shown.map(({ step: at, loss }) => ({ step: at, loss: (least = Math.min(least, loss)) }));
  const axis = logAxis([...shown.map(({ loss }) => Math.min(loss, 20)), ...lines.map(({ loss }) => 0.9 * loss)], "adjusted loss");
  return draw(
    frame,
    {
      x: { label: "step", domain: [0, Math.max(10, shown.at(-1)?.step ?? 0)], ...grid },
      y: axis,
      marks: [
        Plot.ruleY(lines, { y: "loss", stroke: "var(--bayes)", strokeDasharray: "5 4", strokeWidth: 2 }),
        Plot.text(lines, { y: "loss", text: () => "floor", frameAnchor: "right", dy: -8, fill: "var(--bayes)" }),
        Plot.line(best, { x: "step", y: "loss", curve: "step-after", stroke: "var(--model)", strokeOpacity: 0.25, strokeWidth: 6, clip: true }),
        Plot.line(shown, { x: "step", y: "loss", z: (row) => `${row.depth} ${row.stage} ${row.start}`, stroke: "var(--model)", strokeWidth: 1.6, clip: true }),
        Plot.tip(shown.filter(within(axis)), Plot.pointer({ x: "step", y: "loss", title: (row) => `step ${row.step}${row.depth ? `, ${row.depth} layers` : ""}\nloss ${short(row.loss, 3)}` })),
      ],
    },
    shown.length ? `Training loss: ${short(shown.at(-1).loss, 3)} after ${shown.at(-1).step} steps; floor ${short(floor, 3)}.` : "No training yet.",
  );
}

/** The omegas of all layers, as lollipops that move during training. Each is shown in its natural unit. */
export function omegas(frame, omega, sizes) {
  const terms = ["xx", "xy", "yx", "yy"];
  const rows = omega.flatMap((layer, l) => layer.map((value, i) => ({ layer: l + 1, term: terms[i], value: value / sizes[i], omega: value })));
  const top = Math.max(1, ...rows.map(({ value }) => Math.min(Math.abs(value), 20)));
  const narrow = frame.clientWidth < 92 * omega.length; // names of terms would touch
  return draw(
    frame,
    {
      marginTop: 46,
      fx: { label: narrow ? "layer" : null, tickFormat: (layer) => (narrow ? `${layer}` : `layer ${layer}`) },
      x: { domain: terms, label: null, tickSize: 0, tickRotate: narrow ? -90 : 0 },
      y: { label: "ω / unit", labelOffset: 40, domain: [-top, top], ...grid },
      marks: [
        Plot.ruleY([0]),
        Plot.ruleX(rows, { fx: "layer", x: "term", y: "value", stroke: "var(--model)", strokeWidth: 2 }),
        Plot.dot(rows, { fx: "layer", x: "term", y: "value", fill: "var(--model)", r: 3.5 }),
        Plot.tip(rows, Plot.pointer({ fx: "layer", x: "term", y: "value", title: (row) => `layer ${row.layer}, ${row.term}\nω = ${short(row.omega, 3)}` })),
      ],
    },
    `Omegas: ${rows.map((row) => `layer ${row.layer} ${row.term} ${short(row.omega, 3)}`).join(", ")}.`,
  );
}

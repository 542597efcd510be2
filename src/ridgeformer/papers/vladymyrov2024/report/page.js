"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const cellOf = new Map(data.cells.map((cell) => [`${cell.method}|${cell.layers}|${cell.noise}`, cell]));
for (const method of data.methods) if (method.name === data.floor) method.colour = "var(--ink)"; // black, or white on dark
const find = (method, layers, noise) => cellOf.get(`${method}|${layers}|${noise}`);

function make(parent, kind, text, attributes = {}) {
  const node = document.createElement(kind);
  if (text !== null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.appendChild(node);
  return node;
}

function short(value) {
  if (value === null || value === undefined) return "-";
  if (Math.abs(value) < 1e-25) return "0";
  if (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e4) return value.toExponential(1).replace("e+", "e");
  const places = Math.max(2, 2 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toFixed(places);
  return Math.abs(value) < 1 ? text.replace("0.", ".") : text;
}

// ---- tooltips, for the mouse, the keyboard and the finger

const tip = byId("tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
}
const hideTip = () => { tip.style.display = "none"; };
function explain(node, text) {
  node.addEventListener("mousemove", (event) => showTip(text, event.clientX, event.clientY));
  node.addEventListener("mouseleave", hideTip);
  node.setAttribute("aria-describedby", "tip");
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(text, box.left, box.bottom - 10);
  });
  node.addEventListener("blur", hideTip);
}

// ---- the table

function describe(cell) {
  const lines = [
    `${cell.row}, ${cell.noise}`,
    `loss ${cell.loss.toPrecision(4)} ± ${cell.error.toPrecision(2)}`,
    `paper ${cell.paper}, allowed ${cell.limit.toPrecision(4)}${cell.over_paper === null ? "" : `; our loss / paper ${cell.over_paper.toFixed(3)}`}`,
  ];
  if (cell.ratio !== null) lines.push(`${cell.ratio.toFixed(2)} times the floor of ${short(cell.floor)}`);
  if (cell.seeds.length) lines.push(`seeds: ${cell.seeds.map(short).join(", ")}`);
  lines.push(`largest loss of a sequence ${cell.largest.toPrecision(2)}, ${cell.exploded} exploded`);
  lines.push(`Verdict: ${cell.verdict}`);
  return lines.join("\n");
}

function mix(from, to, share) {
  const part = (i) => Math.round(from[i] + (to[i] - from[i]) * Math.min(Math.max(share, 0), 1));
  return `rgb(${part(0)},${part(1)},${part(2)})`;
}
// The ink that is easier to read on a background, by relative luminance.
function inkOn(back) {
  const [r, g, b] = back.match(/\d+/g).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
const WHITE = [247, 247, 247], BLUE = [33, 102, 172], ORANGE = [217, 95, 14], DARK = [68, 40, 110];

function colour(cell, by) {
  if (by === "floor") {
    if (cell.ratio === null) return "rgb(238,238,238)";
    return mix(WHITE, DARK, Math.log(Math.max(cell.ratio, 1)) / Math.log(100));
  }
  if (cell.over_paper === null) return "rgb(238,238,238)";
  const share = Math.log2(Math.max(cell.over_paper, 1e-9));
  return mix(WHITE, share < 0 ? BLUE : ORANGE, Math.abs(share));
}

function drawTable() {
  const table = byId("table"), by = byId("shade").value;
  table.replaceChildren();
  const head = make(table, "tr", null);
  make(head, "th", "", { scope: "col" });
  for (const noise of data.columns) make(head, "th", data.names[noise], { scope: "col" });
  for (const row of data.rows) {
    const line = make(table, "tr", null, row.first ? { class: "first" } : {});
    make(line, "th", row.name, { scope: "row" });
    for (const noise of data.columns) {
      const cell = find(row.method, row.layers, noise);
      const node = make(line, "td", short(cell.loss), { tabindex: table.querySelector("td") ? "-1" : "0" });
      make(node, "span", short(cell.paper), { class: "paper" });
      const back = colour(cell, by);
      node.style.background = back;
      node.style.color = inkOn(back);
      if (cell.faults.length) node.classList.add("short");
      explain(node, describe(cell));
    }
  }
  const keys = by === "paper" ? [["half", 0.5], ["equal", 1], ["twice", 2]] : [["1", 1], ["10", 10], ["100", 100]];
  const legend = byId("legend");
  legend.replaceChildren();
  for (const [name, value] of keys) {
    const box = make(legend, "span", "", { class: "key" });
    box.style.background = colour({ over_paper: value, ratio: value }, by);
    make(legend, "span", name);
  }
  const box = make(legend, "span", "", { class: "key" });
  box.style.boxShadow = "inset 0 0 0 2px var(--bad)";
  make(legend, "span", "fails a check");
}

// One tab stop for the whole table; arrow keys go from cell to cell.
byId("table").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const here = event.target.closest("td");
  if (!step || !here) return;
  event.preventDefault();
  const line = byId("table").rows[here.parentNode.rowIndex + step[0]];
  const next = line && line.cells[here.cellIndex + step[1]];
  if (!next || next.tagName !== "TD") return;
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

function drawFaults() {
  const short_ = data.cells.filter((cell) => cell.faults.length), place = byId("faults");
  if (!short_.length) {
    make(place, "p", "No cell fails a check.");
    return;
  }
  make(place, "p", `${short_.length} cells fail a check:`);
  const list = make(place, "ul", null, { class: "bad" });
  for (const cell of short_) make(list, "li", `${cell.row}, ${cell.noise}: ${cell.faults.join("; ")}`);
}

// ---- the chart, drawn by Observable Plot

function lines() {
  const noise = byId("column").value, view = byId("view").value, depth = Number(byId("depth").value);
  const wanted = new Set([...document.querySelectorAll("#methods input:checked")].map((box) => box.value));
  const found = [];
  for (const method of data.methods.filter((m) => wanted.has(m.name))) {
    const layered = method.layered;
    if (view === "depth") {
      const y = data.depths.map((d) => {
        if (method.name === data.floor) return find("full", 1, noise).floor;
        return find(method.name, layered ? d : null, noise).loss;
      });
      found.push({ ...method, x: data.depths, y, exploded: y.map(() => 0) });
    } else {
      const part = data.profiles[noise];
      const isBayes = method.name === data.floor;
      const row = layered ? `${method.label} ${depth}` : isBayes ? data.bayes : method.name;
      const label = isBayes ? data.bayes : method.label;
      if (part.losses[row]) found.push({ ...method, label, x: part.sigmas, y: part.losses[row], exploded: part.exploded[row] });
    }
  }
  return found;
}

// What the lines and crosses of a chart mean, in full sentences.
function note(view, shown) {
  if (view === "depth") return "The Bayes floor is the smallest expected loss that any predictor can have on this problem.";
  const bayes = "The Bayes predictor has the smallest loss on average over the noise levels of the problem (shaded). At a single level another predictor can have a smaller loss.";
  const each = data.sequences.level.toLocaleString("en");
  const wild = shown.some((line) => line.exploded.some((count) => count > 0));
  const found = wild
    ? `A cross marks a noise level at which at least one of ${each} sequences exploded; there the mean is dominated by such sequences and says little about the others.`
    : `No sequence exploded on the curves shown here, which use ${each} sequences at every noise level.`;
  return `${bayes} ${found} A sequence has exploded if its loss is above ${data.explodes} d; predicting zero has a loss of about d / 2.`;
}

// The marks of one line: its points joined, the marker of its family, and a cross where a sequence exploded.
function marksOf(line, every, top) {
  const rows = line.x.map((x, i) => ({ x, y: Math.max(line.y[i], 1e-300), exploded: line.exploded[i] }));
  const place = { x: "x", y: (row) => Math.min(row.y, top) };
  return [
    Plot.line(rows, { ...place, stroke: line.colour, strokeWidth: line.layered ? 2.6 : 1.8, strokeDasharray: line.dash || null, className: "line" }),
    line.layered ? Plot.dot(rows.filter((_, i) => i % every === 0), { ...place, fill: line.colour, symbol: line.mark, r: 4 }) : null,
    Plot.dot(rows.filter((row) => row.exploded > 0), { ...place, stroke: line.colour, symbol: "times", r: 5, strokeWidth: 2.4, className: "exploded" }),
  ];
}

// The noise levels of the problem, as a band or as bars behind the lines.
function band(noise) {
  const { sigmas, inside } = data.profiles[noise];
  const within = sigmas.filter((_, i) => inside[i]);
  const areas = within.length > 8 ? [[within[0], within[within.length - 1]]] : within.map((sigma) => [sigma - 0.06, sigma + 0.06]);
  return Plot.rectX(areas, { x1: (area) => area[0], x2: (area) => area[1], fill: "var(--pale)" });
}

// All values at one place of the x axis, one line of text for each method.
function values(noise, view, shown) {
  const all = data.sequences.level.toLocaleString("en");
  return shown[0].x.map((x, i) => {
    const name = view === "depth" ? `${x} layers` : `sigma = ${(+x).toFixed(2)}`;
    const wild = (line) => (line.exploded[i] > 0 ? `, ${line.exploded[i]} of ${all} exploded` : "");
    return { x, text: [`${noise}, ${name}`, ...shown.map((line) => `${line.label}: ${short(line.y[i])}${wild(line)}`)].join("\n") };
  });
}

let chart = null; // the chart, its columns of values, and which of them the keyboard is at

function drawChart() {
  const noise = byId("column").value, view = byId("view").value, host = byId("chart");
  const known = data.profiles[noise].depths;
  byId("depths").style.display = view === "profile" ? "" : "none";
  for (const option of byId("depth").options) option.disabled = !known.includes(Number(option.value));
  if (!known.includes(Number(byId("depth").value))) byId("depth").value = String(known[known.length - 1]);
  const shown = lines();
  byId("note").textContent = note(view, shown);
  for (const name of document.querySelectorAll("#methods .bayes")) name.textContent = ` ${view === "depth" ? data.floor : data.bayes}`;
  const positive = shown.flatMap((line) => line.y).filter((y) => y > 1e-20);
  chart = null;
  if (!positive.length) {
    host.replaceChildren();
    make(host, "p", "Nothing to show: choose a method.");
    return;
  }
  // Of a profile the axis ends where predicting zero would do better by far; what explodes stays at the edge.
  const largest = view === "profile" ? Math.min(Math.max(...positive), 9.9) : Math.max(...positive);
  const smallest = view === "profile" ? Math.max(Math.min(...positive), largest * 1e-6) : Math.min(...positive);
  const [low, high] = [Math.floor(Math.log10(smallest)), Math.ceil(Math.log10(largest) + 1e-9)];
  const exponents = Array.from({ length: high - low + 1 }, (_, i) => low + i).filter((_, i) => i % Math.ceil((high - low) / 6) === 0);
  const steps = high - low > 3 ? [1] : [1, 3]; // ticks at 1 and 3 times the powers of ten where there is room
  const ticks = exponents.flatMap((power) => steps.map((step) => Number(`${step}e${power}`))).filter((y) => Math.log10(y) <= high);
  const columns = values(noise, view, shown);
  const picture = Plot.plot({
    width: host.clientWidth, height: Math.min(440, Math.max(300, 0.5 * host.clientWidth)), marginLeft: 60, marginTop: 30, marginBottom: 44,
    style: { background: "none", color: "var(--ink)", fontSize: "13px", fontFamily: "inherit" },
    x: view === "depth" ? { label: "layers", ticks: data.depths, tickFormat: "d", inset: 10 } : { label: "noise level sigma" },
    y: { type: "log", label: "adjusted loss", domain: [Number(`1e${low}`), Number(`1e${high}`)], clamp: true, grid: true, ticks, tickFormat: (y) => (y < 1e-3 || y > 1e3 ? y.toExponential(0).replace("e+", "e") : String(y)) },
    symbol: { type: "identity" },
    marks: [
      view === "profile" ? band(noise) : null,
      ...shown.flatMap((line) => marksOf(line, view === "depth" ? 1 : 6, Number(`1e${high}`))),
      Plot.ruleX(columns, Plot.pointerX({ x: "x", stroke: "var(--soft)", strokeDasharray: "3 3" })),
      Plot.tip(columns, Plot.pointerX({ x: "x", y: () => Number(`1e${high}`), title: "text", anchor: "top", fill: "var(--back)", stroke: "var(--line)", fontSize: 12 })),
    ],
  });
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `adjusted loss against ${view === "depth" ? "the number of layers" : "the noise level"}, ${noise}`);
  picture.addEventListener("input", () => { byId("values").textContent = picture.value ? picture.value.text : ""; });
  host.replaceChildren(picture);
  chart = { picture, columns, at: -1 };
}

// The arrow keys move the pointer of the chart.
byId("chart").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !chart) return;
  event.preventDefault();
  chart.at = Math.min(Math.max(chart.at + step, 0), chart.columns.length - 1);
  const box = chart.picture.getBoundingClientRect();
  const x = box.left + (chart.picture.scale("x").apply(chart.columns[chart.at].x) * box.width) / chart.picture.viewBox.baseVal.width;
  const where = { clientX: x, clientY: box.top + box.height / 2, pointerType: "mouse", bubbles: true };
  for (const kind of ["pointerenter", "pointermove"]) chart.picture.dispatchEvent(new PointerEvent(kind, where));
});
byId("chart").addEventListener("blur", () => chart && chart.picture.dispatchEvent(new PointerEvent("pointerleave", { pointerType: "mouse" })));

// A short piece of a line with its marker, for the list of methods.
function sample(method) {
  const ends = [{ x: 0 }, { x: 1 }];
  const picture = Plot.plot({
    width: 40, height: 14, margin: 2, axis: null, x: { domain: [0, 1] }, y: { domain: [-1, 1] }, symbol: { type: "identity" },
    marks: [
      Plot.line(ends, { x: "x", y: () => 0, stroke: method.colour, strokeWidth: 2.6, strokeDasharray: method.dash || null }),
      method.layered ? Plot.dot([0.5], { x: (x) => x, y: () => 0, fill: method.colour, symbol: method.mark, r: 4 }) : null,
    ],
  });
  picture.setAttribute("class", "sample");
  picture.setAttribute("aria-hidden", "true");
  return picture;
}

function fillControls() {
  for (const noise of data.columns) make(byId("column"), "option", noise, { value: noise });
  byId("column").value = data.shown;
  for (const depth of data.depths) make(byId("depth"), "option", String(depth), { value: String(depth) });
  byId("depth").value = String(data.depths[data.depths.length - 1]);
  for (const method of data.methods) {
    const label = make(byId("methods"), "label", null);
    const box = make(label, "input", null, { type: "checkbox", value: method.name });
    box.checked = true;
    label.appendChild(sample(method));
    make(label, "span", ` ${method.label}`, method.name === data.floor ? { class: "bayes" } : {});
    box.addEventListener("change", drawChart);
  }
  for (const name of ["column", "view", "depth"]) byId(name).addEventListener("change", drawChart);
  byId("shade").addEventListener("change", drawTable);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) drawChart();
    width = window.innerWidth;
  });
}

// ---- claims, figures and further tables

function drawClaims() {
  byId("summary").textContent = data.summary;
  for (const claim of data.claims) {
    const kind = { supported: "borne", contradicted: "contradicted", "partly supported": "part" }[claim.verdict];
    const fold = make(byId("claims"), "details", null, { class: `claim ${kind}` });
    const sentence = make(fold, "summary", null);
    make(sentence, "span", claim.verdict, { class: "badge" });
    make(sentence, "strong", claim.claim);
    make(fold, "p", claim.measured);
    make(fold, "p", `Rule: ${claim.expected}. ${claim.where}.`, { class: "soft" });
  }
  byId("unfold").addEventListener("click", () => {
    const folds = [...document.querySelectorAll("#claims details")], open = !folds.every((fold) => fold.open);
    for (const fold of folds) fold.open = open;
    byId("unfold").textContent = open ? "Hide all numbers" : "Show all numbers";
  });
}

function drawFigures() {
  for (const figure of data.figures) {
    const box = make(byId("figures"), "figure", null);
    make(box, "img", null, { src: figure.image, alt: `Figure ${figure.number}: ${figure.caption}`, loading: "lazy" });
    make(box, "figcaption", `Figure ${figure.number}. ${figure.caption}`);
  }
}

// A table of texts, with its heading, a sentence and a link to it in the list of sections.
function drawPlain({ id, title, text, columns, rows }) {
  const place = byId("tables");
  make(byId("more"), "a", title, { href: `#${id}` });
  make(place, "h2", title, { id });
  if (text) make(place, "p", text);
  const table = make(make(place, "div", null, { class: "scroll" }), "table", null, { class: "plain", "aria-label": title });
  if (columns.length) {
    const head = make(table, "tr", null);
    for (const name of columns) make(head, "th", name, { scope: "col" });
  }
  for (const row of rows) {
    const line = make(table, "tr", null);
    row.forEach((cell, i) => make(line, i ? "td" : "th", cell, i ? (columns.length ? {} : { class: "words" }) : { scope: "row" }));
  }
}

fillControls();
drawClaims();
drawTable();
drawFaults();
drawChart();
drawFigures();
data.tables.forEach(drawPlain);

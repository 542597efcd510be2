"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const cellOf = new Map(data.cells.map((cell) => [`${cell.method}|${cell.layers}|${cell.noise}`, cell]));
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

// ---- the chart

const SVG = "http://www.w3.org/2000/svg";
function shape(parent, kind, attributes, text) {
  const node = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

// At this noise level a sequence exploded.
function cross(parent, x, y, stroke) {
  const d = `M${x - 5},${y - 5}L${x + 5},${y + 5}M${x - 5},${y + 5}L${x + 5},${y - 5}`;
  return shape(parent, "path", { d, fill: "none", stroke, "stroke-width": 2.4, class: "exploded" });
}

// A family's own marker, so that colour is not all that tells lines apart.
function mark(parent, kind, x, y, fill) {
  const points = { square: `${x - 4},${y - 4} ${x + 4},${y - 4} ${x + 4},${y + 4} ${x - 4},${y + 4}`, triangle: `${x},${y - 5} ${x + 5},${y + 4} ${x - 5},${y + 4}` }[kind];
  return points ? shape(parent, "polygon", { points, fill }) : shape(parent, "circle", { cx: x, cy: y, r: 4, fill });
}

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

function drawChart() {
  const noise = byId("column").value, view = byId("view").value, host = byId("chart");
  const known = data.profiles[noise].depths;
  byId("depths").style.display = view === "profile" ? "" : "none";
  for (const option of byId("depth").options) option.disabled = !known.includes(Number(option.value));
  if (!known.includes(Number(byId("depth").value))) byId("depth").value = String(known[known.length - 1]);
  const shown = lines();
  byId("note").textContent = note(view, shown);
  for (const name of document.querySelectorAll("#methods .bayes")) name.textContent = ` ${view === "depth" ? data.floor : data.bayes}`;
  host.replaceChildren();
  const W = 900, H = 440, L = 78, R = 20, T = 16, B = 52;
  const svg = shape(host, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0", "aria-describedby": "tip", "aria-label": `${view} chart of ${noise}; arrow keys give the values` });
  const positive = shown.flatMap((line) => line.y).filter((y) => y > 1e-20);
  if (!positive.length) {
    shape(svg, "text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, "Nothing to show: choose a method.");
    return;
  }
  const xs = shown[0].x, x0 = Math.min(...xs), x1 = Math.max(...xs);
  // Of a profile the axis ends where predicting zero would do better by far; what explodes leaves it.
  const largest = view === "profile" ? Math.min(Math.max(...positive), 9.9) : Math.max(...positive);
  const smallest = view === "profile" ? Math.max(Math.min(...positive), largest * 1e-6) : Math.min(...positive);
  const low = Math.floor(Math.log10(smallest)), high = Math.ceil(Math.log10(largest) + 1e-9);
  const px = (x) => L + ((x - x0) / (x1 - x0 || 1)) * (W - L - R);
  const py = (y) => T + ((high - Math.min(Math.max(Math.log10(Math.max(y, 1e-300)), low), high)) / (high - low || 1)) * (H - T - B);
  if (view === "profile") {
    const inside = data.profiles[noise].sigmas.filter((_, i) => data.profiles[noise].inside[i]);
    if (inside.length > 8) {
      shape(svg, "rect", { x: px(inside[0]), y: T, width: px(inside[inside.length - 1]) - px(inside[0]), height: H - T - B, fill: "#f0f0f0" });
    } else {
      for (const s of inside) shape(svg, "rect", { x: px(s) - 4, y: T, width: 8, height: H - T - B, fill: "#e2e2e2" });
    }
  }
  const step = Math.max(1, Math.ceil((high - low) / 6));
  for (let power = low; power <= high; power += step) {
    const y = py(10 ** power);
    shape(svg, "line", { x1: L, x2: W - R, y1: y, y2: y, stroke: "#dddddd" });
    shape(svg, "text", { x: L - 8, y: y + 4, "text-anchor": "end" }, power < -3 || power > 3 ? `1e${power}` : String(+(10 ** power).toPrecision(1)));
  }
  const ticks = view === "depth" ? xs : Array.from({ length: Math.floor(x1) + 1 }, (_, i) => i);
  for (const x of ticks) shape(svg, "text", { x: px(x), y: H - B + 22, "text-anchor": "middle" }, String(x));
  shape(svg, "text", { x: (L + W - R) / 2, y: H - 8, "text-anchor": "middle" }, view === "depth" ? "layers" : "noise level sigma");
  for (const line of shown) {
    const path = line.x.map((x, i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(line.y[i]).toFixed(1)}`).join("");
    shape(svg, "path", { d: path, fill: "none", stroke: line.colour, "stroke-width": line.layered ? 2.6 : 1.8, "stroke-dasharray": line.dash, class: "line" });
    const every = view === "depth" ? 1 : 6;
    if (line.layered) line.x.forEach((x, i) => { if (i % every === 0) mark(svg, line.mark, px(x), py(line.y[i]), line.colour); });
  }
  // Above all lines; a little apart at the edge, where several lines may leave.
  shown.forEach((line, place) => line.x.forEach((x, i) => {
    if (line.exploded[i] > 0) cross(svg, px(x), line.y[i] > 10 ** high ? T + 3 * place : py(line.y[i]), line.colour);
  }));
  const cursor = shape(svg, "line", { y1: T, y2: H - B, stroke: "#555555", "stroke-dasharray": "3 3", visibility: "hidden" });
  let near = 0;
  const point = (clientX, clientY) => {
    cursor.setAttribute("x1", px(xs[near]));
    cursor.setAttribute("x2", px(xs[near]));
    cursor.setAttribute("visibility", "visible");
    const name = view === "depth" ? `${xs[near]} layers` : `sigma = ${(+xs[near]).toFixed(2)}`;
    const all = data.sequences.level.toLocaleString("en");
    const wild = (line) => (line.exploded[near] > 0 ? `, ${line.exploded[near]} of ${all} exploded` : "");
    showTip([`${noise}, ${name}`, ...shown.map((line) => `${line.label}: ${short(line.y[near])}${wild(line)}`)].join("\n"), clientX, clientY);
  };
  const leave = () => { cursor.setAttribute("visibility", "hidden"); hideTip(); };
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = x0 + (((event.clientX - box.left) / box.width) * W - L) / (W - L - R) * (x1 - x0);
    near = 0;
    xs.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(xs[near] - at)) near = i; });
    point(event.clientX, event.clientY);
  });
  svg.addEventListener("mouseleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    near = Math.min(Math.max(near + step, 0), xs.length - 1);
    const box = svg.getBoundingClientRect();
    point(box.left + (px(xs[near]) / W) * box.width, box.top + 40);
  });
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
    const sample = shape(label, "svg", { viewBox: "0 0 40 14", class: "sample", "aria-hidden": "true" });
    shape(sample, "line", { x1: 0, x2: 40, y1: 7, y2: 7, stroke: method.colour, "stroke-width": 2.6, "stroke-dasharray": method.dash });
    if (method.layered) mark(sample, method.mark, 20, 7, method.colour);
    make(label, "span", ` ${method.label}`, method.name === data.floor ? { class: "bayes" } : {});
    box.addEventListener("change", drawChart);
  }
  for (const name of ["column", "view", "depth"]) byId(name).addEventListener("change", drawChart);
  byId("shade").addEventListener("change", drawTable);
}

// ---- the rest

function drawRest() {
  byId("summary").textContent = data.summary;
  for (const claim of data.claims) {
    const kind = { supported: "borne", contradicted: "contradicted", "partly supported": "part" }[claim.verdict];
    const box = make(byId("claims"), "div", null, { class: `claim ${kind}` });
    const first = make(box, "p", null);
    make(first, "span", claim.verdict, { class: "badge" });
    make(first, "strong", claim.claim);
    make(box, "p", claim.measured);
    make(box, "p", `Rule: ${claim.expected}. ${claim.where}.`, { class: "soft" });
  }
  for (const figure of data.figures) {
    const box = make(byId("figures"), "figure", null);
    make(box, "img", null, { src: figure.image, alt: `Figure ${figure.number}: ${figure.caption}`, loading: "lazy" });
    make(box, "figcaption", `Figure ${figure.number}. ${figure.caption}`);
  }
  const table = byId("baselines"), head = make(table, "tr", null);
  for (const name of ["", "floor", "±", ...data.baselines.flatMap((b) => [b, "paper"]), "best model", "ratio"]) make(head, "th", name);
  for (const noise of data.columns) {
    const line = make(table, "tr", null), first = find("full", 1, noise);
    make(line, "th", noise);
    make(line, "td", short(first.floor));
    make(line, "td", short(first.floor_error));
    for (const name of data.baselines) {
      const cell = find(name, null, noise);
      make(line, "td", short(cell.loss));
      make(line, "td", short(cell.paper));
    }
    const models = data.cells.filter((cell) => cell.noise === noise && cell.layers);
    const best = models.reduce((a, b) => (b.loss < a.loss ? b : a));
    make(line, "td", `${best.row}: ${short(best.loss)}`);
    make(line, "td", best.ratio === null ? "-" : best.ratio.toFixed(2));
  }
  byId("often").textContent = data.explosions.summary;
  const rare = byId("explosions"), top = make(rare, "tr", null);
  for (const name of ["", ...data.columns]) make(top, "th", name);
  for (const row of data.rows.filter((one) => one.layers)) {
    const line = make(rare, "tr", null);
    make(line, "th", row.name);
    for (const noise of data.columns) {
      const one = data.explosions.models.find((m) => m.method === row.method && m.layers === row.layers && m.noise === noise);
      const digits = (value) => value.toExponential(1);
      const least = one.bound === "lower" ? "≥ " : "";
      const parts = one.bound === "upper" ? ["none seen"] : [`${least}${digits(one.probability)} ± ${digits(one.error)}`, `${Math.round(one.hits)} hits`];
      if (one.actual !== row.name) parts.push(`is ${one.actual}`);
      if (one.price !== null) parts.push(`price ${(100 * one.price).toFixed(1)} %`);
      const cell = make(line, "td", parts[0]);
      for (const part of parts.slice(1)) make(cell, "div", part, { class: "soft" });
      if (one.probability > 1e-7) cell.style.fontWeight = "600";
    }
  }
  for (const [name, text] of data.made) {
    const line = make(byId("made"), "tr", null);
    make(line, "th", name);
    const cell = make(line, "td", text);
    cell.style.textAlign = "left";
    cell.style.whiteSpace = "normal";
  }
}

fillControls();
drawTable();
drawFaults();
drawChart();
drawRest();

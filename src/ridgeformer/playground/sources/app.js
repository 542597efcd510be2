// The page: starts the core, reads the address, and shows the view that it names.

import { chapter, CHAPTERS, contents, opening } from "./chapters/index.js";
import { h, say } from "./dom.js";
import { Engine } from "./engine.js";
import { explore } from "./explore.js";
import { asJSON, asModelFile, asPython, download } from "./exporting.js";
import { parseNoise } from "./noise.js";
import { score } from "./score.js";
import { DEFAULTS, fromAddress, Store, toAddress } from "./state.js";
import { train } from "./train.js";
import { showWords } from "./words.js";
import script from "worker-source";

const VIEWS = { explore, train, score, chapters: contents };
const NAMES = { explore: "Explore", train: "Train", score: "Beat the floor", chapters: "Chapters" };
const BY_HAND = [[0, 0, -0.02, 0], [0, 0, 0, 0]]; // where "Beat the floor" begins
const FIRST = "diag/4/uniform(0,5)";

const models = JSON.parse(document.getElementById("models").textContent);
const main = document.getElementById("main");
const core = Uint8Array.from(atob(document.getElementById("core").textContent.trim()), (c) => c.charCodeAt(0));
const start = () => new Engine(script, core);
const engine = start();
const background = start(); // for what takes longer, so that sliders stay quick
const store = new Store(structuredClone(DEFAULTS));
const app = { store, start, engine, background, models, open, updates: 0, updated: () => (app.updates += 1) };
let view = null;
let shown = null;

function mountOf(name) {
  const number = Number(/^chapter-(\d+)$/.exec(name)?.[1]);
  if (number >= 1 && number <= CHAPTERS.length) return chapter(number);
  return VIEWS[name] ?? explore;
}

/** Replace the whole state and show its view anew. */
function open(state) {
  shown = null;
  store.change(state);
  store.write();
}

function show(state) {
  if (state.view !== shown) {
    view?.leave?.();
    shown = state.view;
    view = mountOf(state.view)(main, app);
    header(state);
    scrollTo(0, 0);
  }
  view.update(state);
}

/** Change to another view; models stay. */
function visit(name) {
  const part = name === "score" ? { omega: structuredClone(BY_HAND), family: "diag", off: [] } : {};
  store.change({ view: name, values: {}, ...part });
  store.write();
  main.focus({ preventScroll: true });
}

function header(state) {
  document.body.classList.toggle("bare", state.bare);
  const current = state.view.startsWith("chapter") ? "chapters" : state.view;
  const tab = (name) => h("button", { type: "button", "aria-current": name === current ? "page" : null, onclick: () => visit(name) }, NAMES[name]);
  document.getElementById("top").replaceChildren(
    h("strong", { class: "brand" }, "ridgeformer", h("span", {}, " playground")),
    h("nav", { "aria-label": "views" }, Object.keys(NAMES).map(tab)),
    h("button", { type: "button", class: "share", onclick: showWords }, "Words"),
    h("button", { type: "button", class: "share", onclick: share }, "Share", h("span", {}, " and export")),
  );
  document.title = `${NAMES[current] ?? "Explore"} – ridgeformer playground`;
}

/** A text that can be copied, with its button. */
function copied(id, label, rows) {
  const text = h("textarea", { readonly: true, rows, id, "aria-label": label });
  const button = h("button", { type: "button", onclick: async () => {
    text.select();
    try {
      await navigator.clipboard.writeText(text.value);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    say(`${label} copied.`);
  } }, `Copy the ${label}`);
  return { text, button };
}

function share() {
  store.write();
  const [link, frame, code] = [copied("link", "link", 3), copied("frame", "HTML", 2), copied("code", "Python code", 10)];
  code.text.value = asPython(store.state);
  const bare = h("input", { type: "checkbox", id: "hide", checked: store.state.bare, onchange: () => write() });
  const write = () => {
    link.text.value = `${location.href.split("#")[0]}#${toAddress({ ...store.state, bare: bare.checked })}`;
    frame.text.value = `<iframe src="${link.text.value.replaceAll("&", "&amp;")}" width="100%" height="800" title="ridgeformer playground"></iframe>`;
  };
  write();
  const save = (label, name, make, type) => h("button", { type: "button", onclick: () => download(name, make(store.state), type) }, label);
  const local = location.protocol === "file:" ? h("p", { class: "hint" }, "This page is a file on your computer. To hand out the link, send the file as well, or put it on a web server; what follows # works wherever the file is.") : null;
  const dialog = h("dialog", { "aria-label": "share and export", onclose: () => dialog.remove() },
    h("h2", {}, "Share"), h("p", {}, "The whole state is in this link: whoever opens it sees what you see. Python reads it too: ", h("code", {}, 'ridgeformer.load("…#…")')), local,
    link.text, h("div", { class: "buttons" }, link.button, h("label", { for: "hide" }, bare, " without the navigation")),
    h("details", {}, h("summary", {}, "Show it in another page"), frame.text, frame.button),
    h("h2", {}, "Export the model"), h("div", { class: "buttons" }, save("Model file", "model.safetensors", asModelFile, "application/octet-stream"), save("JSON", "model.json", asJSON, "application/json"), save("Python", "model.py", asPython, "text/x-python")), code.text, code.button,
    h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
  link.text.setSelectionRange(0, 0);
  link.text.scrollTop = 0;
}

/** The model for an address that names none: a shipped one for the dimension and noise that it gives, or else a step of gradient descent. */
function begin({ d, n, noise }, given) {
  const shipped = models.filter((model) => model.d === d && (!given.has("noise") || model.noise === noise) && (!given.has("n") || model.n === n));
  const model = shipped.find(({ name }) => name === FIRST) ?? shipped.findLast(({ family }) => family === "diag");
  if (!model) return { family: "diag", omega: [[0, 0, -1 / (n + d + 1 + parseNoise(noise).secondMoment), 0]] };
  return { family: model.family, n: model.n, noise: model.noise, omega: structuredClone(model.omega) };
}

/** Read the address. Without a model in it, the view begins as it should. */
function read() {
  try {
    const { state, complete, given } = fromAddress(location.hash);
    const number = Number(/^chapter-(\d+)$/.exec(state.view)?.[1]);
    if (complete) return open(state);
    const { bare } = state;
    if (number >= 1 && number <= CHAPTERS.length) return open({ ...opening(number, models), bare });
    if (state.view === "score") return open({ ...state, omega: structuredClone(BY_HAND) });
    return open({ ...state, ...begin(state, given) });
  } catch (error) {
    main.replaceChildren(h("p", { class: "error", role: "alert" }, `The address cannot be read: ${error.message}`), h("p", {}, h("a", { href: "#view=explore" }, "Begin anew")));
    return undefined;
  }
}

store.watchers.add(show);
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== toAddress(store.state)) read();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width && view) view.update(store.state);
  width = innerWidth;
});
window.playground = app; // for the console and for tests
await_start();

async function await_start() {
  await engine.ready;
  read();
  document.documentElement.dataset.ready = "";
}

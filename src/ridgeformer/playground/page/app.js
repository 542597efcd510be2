// The page: starts the core, reads the address, and shows the view that it names.

import { chapter, CHAPTERS, contents, opening } from "./chapters/index.js";
import { h, say } from "./dom.js";
import { Engine } from "./engine.js";
import { explore } from "./explore.js";
import { asJSON, asModelFile, asPython, download } from "./exporting.js";
import { score } from "./score.js";
import { DEFAULTS, fromAddress, Store, toAddress } from "./state.js";
import { train } from "./train.js";

const VIEWS = { explore, train, score, chapters: contents };
const NAMES = { explore: "Explore", train: "Train", score: "Beat the floor", chapters: "Chapters" };
const BY_HAND = [[0, 0, -0.02, 0], [0, 0, 0, 0]]; // where "Beat the floor" begins
const FIRST = "diag/4/uniform(0,5)";

const models = JSON.parse(document.getElementById("models").textContent);
const main = document.getElementById("main");
const engine = new Engine();
const background = new Engine(); // for what takes longer, so that sliders stay quick
const store = new Store(structuredClone(DEFAULTS));
const app = { store, engine, background, models, open, updates: 0, updated: () => (app.updates += 1) };
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
    h("button", { type: "button", class: "share", onclick: share }, "Share and export"),
  );
  document.title = `${NAMES[current] ?? "Explore"} – ridgeformer playground`;
}

function share() {
  store.write();
  const link = `${location.href.split("#")[0]}#${store.address}`;
  const text = h("textarea", { readonly: true, rows: 3, id: "link", "aria-label": "link to this state" });
  text.value = link;
  const code = h("textarea", { readonly: true, rows: 10, id: "code", "aria-label": "Python code" });
  code.value = asPython(store.state);
  const copy = (source, what) => h("button", { type: "button", onclick: async () => {
    source.select();
    try {
      await navigator.clipboard.writeText(source.value);
    } catch {
      document.execCommand("copy");
    }
    say(`${what} copied.`);
  } }, `Copy ${what}`);
  const save = (label, name, make, type) => h("button", { type: "button", onclick: () => download(name, make(store.state), type) }, label);
  const dialog = h("dialog", { "aria-label": "share and export", onclose: () => dialog.remove() },
    h("h2", {}, "Share"), h("p", {}, "The whole state is in this link. Python reads it too: ", h("code", {}, 'ridgeformer.load("…#…")')), text, copy(text, "link"),
    h("h2", {}, "Export"), h("div", { class: "buttons" }, save("Model file", "model.safetensors", asModelFile, "application/octet-stream"), save("JSON", "model.json", asJSON, "application/json"), save("Python", "model.py", asPython, "text/x-python")), code, copy(code, "code"),
    h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

/** Read the address. Without a model in it, the view begins as it should. */
function read() {
  try {
    const { state, complete } = fromAddress(location.hash);
    const number = Number(/^chapter-(\d+)$/.exec(state.view)?.[1]);
    if (complete) return open(state);
    const { bare } = state;
    if (number >= 1 && number <= CHAPTERS.length) return open({ ...opening(number, models), bare });
    if (state.view === "score") return open({ ...state, omega: structuredClone(BY_HAND) });
    const { family, d, n, noise, omega } = models.find(({ name }) => name === FIRST);
    return open({ ...state, family, d, n, noise, omega: structuredClone(omega) });
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

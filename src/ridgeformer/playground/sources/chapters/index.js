// The guided chapters: predict, try, pass a numeric test, read the derivation.

import { h, rich, say } from "../dom.js";
import { keep, recall } from "../memory.js";
import { DEFAULTS } from "../state.js";
import { neededLayer, onePenalty, outside, readsNoise, theFloor } from "./noise.js";
import { gradientStep, onlyMoments, sameParameters, secondLayer, trainingFindsIt } from "./one-layer.js";

export const CHAPTERS = [sameParameters, onlyMoments, gradientStep, trainingFindsIt, secondLayer, onePenalty, theFloor, readsNoise, neededLayer, outside];
const CLASSES = ["One layer is one step", "Noise, and what trained layers do"];
const solved = () => new Set(recall("solved") ?? []);

/** The state in which a chapter begins. */
export function opening(number, models) {
  const { start } = CHAPTERS[number - 1];
  const { model: name, more = [], ...part } = structuredClone(start);
  const state = { ...structuredClone(DEFAULTS), view: `chapter-${number}`, ...part };
  if (name) {
    const model = models.find((one) => one.name === name);
    state.family = part.family ?? model.family;
    state.omega = [...structuredClone(model.omega), ...more];
  }
  return state;
}

/** The list of chapters. */
export function contents(main, app) {
  const done = solved();
  const entry = (chapter, number) =>
    h("li", {}, h("a", { href: `#view=chapter-${number}`, class: done.has(number) ? "chapter solved" : "chapter" }, h("b", { "aria-hidden": "true" }, number), h("span", {}, h("strong", {}, rich(chapter.title)), h("small", {}, rich(chapter.summary))), done.has(number) ? h("em", {}, "✓ solved") : null));
  main.replaceChildren(
    h("div", { class: "contents" }, h("h1", {}, "Ten chapters"), h("p", { class: "lead" }, "Predict, try, pass a test, read why. Two classes of 90 minutes, or an evening."),
      CLASSES.map((name, part) => h("section", {}, h("h2", {}, name), h("ol", { start: 5 * part + 1 }, CHAPTERS.slice(5 * part, 5 * part + 5).map((chapter, i) => entry(chapter, 5 * part + i + 1)))))),
  );
  return { update: () => app.updated?.() };
}

/** One chapter. */
export function chapter(number) {
  return (main, app) => {
    const one = CHAPTERS[number - 1];
    const controls = h("div", { class: "controls" });
    const pictures = h("div", { class: "pictures" });
    const task = h("p", { class: "task", id: "task" }, h("b", {}, "Task "), rich(one.task));
    const mark = h("p", { class: "mark", id: "solved", hidden: true }, "✓ Solved");
    const derivation = h("details", { class: "derivation" }, h("summary", {}, "Why: the solution and its derivation"), one.derivation.map((text) => h("p", {}, rich(text))));
    const bare = app.store.state.bare ? "&bare=1" : "";
    const go = (to, text) => (to >= 1 && to <= CHAPTERS.length ? h("a", { href: `#view=chapter-${to}${bare}` }, text) : h("span"));
    const next = go(number + 1, "Next chapter →");
    const again = h("button", { type: "button", class: "plain", onclick: () => app.open({ ...opening(number, app.models), bare: app.store.state.bare }) }, "Begin again");
    const work = h("div", { class: "work chapterwork untouched" });
    for (const event of ["input", "pointerdown", "keydown"]) work.addEventListener(event, ({ target }) => target.closest(".controls, .handles") && work.classList.remove("untouched"));
    main.replaceChildren(work);
    work.append(
      h("article", { class: "panel lesson" },
        h("p", { class: "eyebrow" }, `Chapter ${number} of ${CHAPTERS.length}`), h("h1", {}, rich(one.title)), h("p", {}, rich(one.idea)),
        h("p", { class: "predict" }, h("b", {}, "Predict "), rich(one.predict)), task, controls, mark, derivation,
        h("nav", { class: "steps", "aria-label": "chapters" }, go(number - 1, "← Back"), again, next)),
      pictures,
    );
    let passed = false;
    const solve = (now) => {
      app.updated?.();
      if (!now || passed) return;
      passed = true;
      keep("solved", [...solved().add(number)]);
      mark.hidden = false;
      derivation.open = true;
      task.classList.add("done");
      next.classList.add("onward");
      say("Solved. The derivation is open.");
    };
    const update = one.mount({ controls, pictures, app, solve });
    return { update, leave: () => update.leave?.() };
  };
}

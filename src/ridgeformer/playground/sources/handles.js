// Handles that can be dragged over a chart, by mouse, finger or arrow keys. They live in a layer of their own, which stays
// while the chart below is drawn again.

import { pictureOf } from "./charts.js";
import { short } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

export class Handles {
  /** `frame` is an element with a position; `onMove(index, { x, y })` is told the new place in the units of the chart. */
  constructor(frame, onMove, { axes = "xy", step = 0.1, label = (_, i) => `point ${i + 1}` } = {}) {
    this.layer = document.createElementNS(SVG, "svg");
    this.layer.classList.add("handles");
    frame.append(this.layer);
    Object.assign(this, { onMove, axes, step, label, dragged: null, pressed: null });
    this.layer.addEventListener("pointermove", (event) => this.#drag(event));
    for (const name of ["pointerup", "pointercancel"]) this.layer.addEventListener(name, () => this.#drop());
  }

  /** Put the handles where the points are, by the scales of the chart. */
  place(chart, points) {
    this.scales = { x: chart.scale("x"), y: chart.scale("y") };
    this.points = points;
    const box = pictureOf(chart);
    for (const name of ["width", "height", "viewBox"]) this.layer.setAttribute(name, box.getAttribute(name));
    while (this.layer.childElementCount > points.length) this.layer.lastChild.remove();
    while (this.layer.childElementCount < points.length) this.layer.append(this.#make(this.layer.childElementCount));
    points.forEach((point, i) => {
      const handle = this.layer.children[i];
      handle.setAttribute("cx", this.scales.x.apply(point.x));
      handle.setAttribute("cy", this.scales.y.apply(point.y));
      const value = this.axes.length === 2 ? `${short(point.x, 3)}, ${short(point.y, 3)}` : short(point[this.axes], 3);
      handle.setAttribute("aria-label", `${this.label(point, i)}: ${value}`);
      handle.setAttribute("aria-valuenow", point[this.axes.at(-1)]);
      handle.setAttribute("aria-valuetext", value);
      if (point.color) handle.style.fill = point.color;
    });
  }

  #make(index) {
    const handle = document.createElementNS(SVG, "circle");
    handle.setAttribute("r", 7);
    handle.setAttribute("tabindex", 0);
    handle.setAttribute("role", "slider");
    handle.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      handle.focus();
      handle.setPointerCapture(event.pointerId);
      this.dragged = index;
      this.pressed = null;
    });
    handle.addEventListener("blur", () => (this.pressed = null));
    handle.addEventListener("keydown", (event) => this.#press(event, index));
    return handle;
  }

  #drag(event) {
    if (this.dragged === null) return;
    const box = this.layer.getBoundingClientRect();
    const scale = this.layer.viewBox.baseVal.width / box.width;
    const at = { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
    const point = { ...this.points[this.dragged] };
    for (const axis of this.axes) {
      const { invert, domain } = this.scales[axis];
      point[axis] = Math.min(Math.max(...domain), Math.max(Math.min(...domain), invert(at[axis])));
    }
    this.onMove(this.dragged, point);
  }

  #drop() {
    this.dragged = null;
  }

  #press(event, index) {
    const moves = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowDown: ["y", -1], ArrowUp: ["y", 1] };
    let [axis, sign] = moves[event.key] ?? [];
    if (!axis) return;
    event.preventDefault();
    if (!this.axes.includes(axis)) axis = this.axes;
    const size = (event.shiftKey ? 5 : 1) * this.step;
    const point = { ...(this.pressed ?? this.points[index]) }; // keys may come faster than drawings
    point[axis] += sign * size;
    const { domain } = this.scales[axis];
    point[axis] = Math.min(Math.max(...domain), Math.max(Math.min(...domain), point[axis]));
    this.pressed = point;
    this.onMove(index, point);
  }
}

// The workers as seen from the page: `ask` sends a job and returns a promise of its result.

import workerSource from "worker-source";

const bytes = () => Uint8Array.from(atob(document.getElementById("core").textContent.trim()), (c) => c.charCodeAt(0));

export class Engine {
  constructor() {
    const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
    this.worker = new Worker(url);
    this.waiting = new Map();
    this.number = 0;
    this.onReport = null;
    this.worker.onmessage = ({ data }) => this.#receive(data);
    this.ready = this.ask("start", { wasm: bytes() });
  }

  #receive({ id, result, error, report }) {
    if (report) return this.onReport?.(report);
    const { resolve, reject } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) reject(new Error(error));
    else resolve(result);
  }

  ask(name, given) {
    const id = (this.number += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, name, given });
    });
  }

  /** A function that asks, and while an answer is under way remembers only the latest question. */
  latest(name, answer) {
    let busy = false;
    let next = null;
    const send = async (given) => {
      busy = true;
      try {
        answer(await this.ask(name, given), given);
      } finally {
        busy = false;
        if (next) {
          const later = next;
          next = null;
          send(later);
        }
      }
    };
    return (given) => {
      if (busy) next = given;
      else send(given);
    };
  }
}

// A worker as seen by who starts it: `ask` sends a job and returns a promise of its result.

export class Engine {
  /** Start a worker from the text of its script, with the core as bytes or as a compiled module. */
  constructor(script, wasm) {
    this.worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    this.waiting = new Map();
    this.number = 0;
    this.onReport = null;
    this.worker.onmessage = ({ data }) => this.#receive(data);
    this.ready = this.ask("start", { script, wasm });
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

  /** A function that asks, and while an answer is under way remembers only the latest question. What a question is `about` stays here, for its answer. */
  latest(name, answer) {
    let busy = false;
    let next = null;
    const send = async (question) => {
      busy = true;
      try {
        answer(await this.ask(name, question.given), question.about);
      } finally {
        busy = false;
        const later = next;
        next = null;
        if (later) send(later);
      }
    };
    return (given, about = given) => {
      if (busy) next = { given, about };
      else send({ given, about });
    };
  }
}

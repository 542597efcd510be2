// The C++ core, compiled to WebAssembly. Arrays live in the memory of the core, the sequence index last:
// gram [D][D][B], task, ridge and estimates [d][B].

export const EVALUATION = 2 ** 30; // the stream that Python's `evaluate` draws from
const TYPES = { float: Float32Array, double: Float64Array };

/** An array in the memory of the core. `view` must be asked for again after every allocation, which may move memory. */
class Block {
  constructor(core, type, length) {
    this.core = core;
    this.type = type;
    this.length = length;
    this.at = core.exports.malloc(Math.max(1, length) * type.BYTES_PER_ELEMENT);
  }
  get view() {
    return new this.type(this.core.exports.memory.buffer, this.at, this.length);
  }
  set(values) {
    this.view.set(values);
    return this;
  }
  free() {
    this.core.exports.free(this.at);
  }
}

/** Moments of B contexts: what a linear transformer sees of them. */
export class Contexts {
  constructor(core, d, n, size, precision) {
    const type = TYPES[precision];
    Object.assign(this, { core, d, n, size, precision });
    this.gram = new Block(core, type, (d + 1) * (d + 1) * size);
    this.task = new Block(core, type, d * size);
    this.ridge = new Block(core, type, d * size);
    this.sigma = new Float64Array(size);
  }
  free() {
    for (const block of [this.gram, this.task, this.ridge]) block.free();
  }
}

export class Core {
  constructor(module, instance) {
    this.module = module;
    this.exports = instance.exports;
    this.exports._initialize();
    this.kept = new Map();
  }

  /** Start the core from the bytes of the .wasm file, or from a compiled module. */
  static async start(wasm) {
    const module = wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm);
    return new Core(module, await WebAssembly.instantiate(module, {}));
  }

  /** A named array that is used again by the next call; it grows when needed. */
  room(name, type, length) {
    const old = this.kept.get(name);
    if (old && old.type === type && old.capacity >= length) {
      old.length = length;
      return old;
    }
    old?.free();
    const block = new Block(this, type, length);
    block.capacity = length;
    this.kept.set(name, block);
    return block;
  }

  /** Random numbers in (0, 1), one per sequence, from which noise levels are made. */
  uniforms({ seed = 0, stream = EVALUATION, step = 0, first = 0 }, count, word = 0) {
    const out = this.room("uniforms", Float64Array, count);
    this.exports.uniforms_double(seed, stream, step, first, count, word, out.at);
    return out.view.slice();
  }

  /** Moments of random sequences with the given noise levels. */
  sample(d, n, sigma, { seed = 0, stream = EVALUATION, step = 0, first = 0 }, precision = "double") {
    const contexts = new Contexts(this, d, n, sigma.length, precision);
    contexts.sigma.set(sigma);
    const levels = this.room("sigma", Float64Array, sigma.length).set(sigma);
    const { gram, task, ridge } = contexts;
    const call = this.exports[`sample_${precision}`];
    call(d, n, seed, stream, step, first, sigma.length, levels.at, gram.at, task.at, ridge.at);
    return contexts;
  }

  /** Contexts from Gram matrices [D][D][B] of one's own. */
  load(d, n, gram, precision = "double") {
    const size = gram.length / (d + 1) ** 2;
    const contexts = new Contexts(this, d, n, size, precision);
    contexts.gram.set(gram);
    contexts.task.view.fill(0);
    contexts.ridge.view.fill(0);
    return contexts;
  }

  /** Losses of a model on contexts; estimates w [d][B] and the gradient of the mean loss [L][4] if wanted. */
  evaluate(omega, contexts, { target = "ridge", ceiling = Infinity, estimates = false, gradient = false } = {}) {
    const { d, size, precision } = contexts;
    const type = TYPES[precision];
    const flat = omega.flat();
    const parameters = this.room("omega", type, flat.length).set(flat);
    const losses = this.room("losses", type, size);
    const weights = estimates ? this.room("weights", type, d * size) : { at: 0 };
    const slope = gradient ? this.room("gradient", Float64Array, flat.length) : { at: 0 };
    const call = this.exports[`evaluate_${precision}`];
    const goal = contexts[target].at;
    const gram = contexts.gram.at;
    const limited = call(d, omega.length, parameters.at, size, gram, goal, ceiling, losses.at, weights.at, slope.at);
    return {
      losses: losses.view,
      estimates: estimates ? weights.view : null,
      gradient: gradient ? slope.view.map((sum) => sum / size) : null,
      limited,
    };
  }

  /** `sample` and `evaluate` in one call: fresh sequences for every step of training. */
  step(omega, d, n, sigma, { seed = 0, stream = 0, step = 0, first = 0 }, options = {}) {
    const { target = "ridge", ceiling = Infinity, gradient = true, unadjusted = false, precision = "float" } = options;
    const type = TYPES[precision];
    const size = sigma.length;
    const flat = omega.flat();
    const parameters = this.room("omega", type, flat.length).set(flat);
    const levels = this.room("sigma", Float64Array, size).set(sigma);
    const losses = this.room("losses", type, size);
    const others = unadjusted ? this.room("unadjusted", type, size) : { at: 0 };
    const slope = gradient ? this.room("gradient", Float64Array, flat.length) : { at: 0 };
    const call = this.exports[`step_${precision}`];
    const drawn = [d, n, seed, stream, step, first, size, levels.at];
    const ridge = target === "ridge" ? 1 : 0;
    const results = [losses.at, others.at, slope.at];
    const limited = call(...drawn, omega.length, parameters.at, ridge, ceiling, ...results);
    return {
      losses: losses.view,
      unadjusted: unadjusted ? others.view : null,
      gradient: gradient ? slope.view.map((sum) => sum / size) : null,
      limited,
    };
  }
}

/** The mean of losses as Python takes it: a loss above 1e12, or one that is not a number, counts as 1e12. */
export function mean(losses) {
  let total = 0;
  for (const loss of losses) total += Math.abs(loss) <= 1e12 ? loss : 1e12;
  return total / losses.length;
}

/** How many losses count as exploded: above 100 d, or not a number. */
export function exploded(losses, d) {
  let count = 0;
  for (const loss of losses) if (!(loss <= 100 * d)) count += 1;
  return count;
}

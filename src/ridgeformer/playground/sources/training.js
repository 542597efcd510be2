// Training: the same loss and gradient as in Python, from the core; here is only how to go downhill with them.

import { mean } from "./core.js";
import { adam, bfgs, descent } from "./optimisers.js";

const TRAINING = 0; // the stream of fresh sequences
const RACE = 1; // the stream of fixed ones
export const BATCH = 2048;
const STAGES = { race: [1024, 60], best: [2048, 200], final: [8192, 60] }; // sequences, and iterations at most
const CANDIDATES = { best: 4, final: 2 };

/** A small generator of random numbers (mulberry32), for starts: the same seed gives the same training. */
export function random(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal };
}

/** The natural size of xx, xy, yx, yy: a layer with these omegas changes a token by about itself. */
export function units({ d, n, noise }) {
  const tokens = n + d + 1;
  const labels = tokens * (d + noise.secondMoment);
  return [1 / tokens, 1 / labels, 1 / tokens, 1 / labels];
}

const free = (family) => (family === "gdpp" ? [0, 2] : [0, 1, 2, 3]);

/** Omegas [L][4] to a vector of their free numbers, each in its own unit, and back. */
export function vector(family, sizes) {
  const columns = free(family);
  return {
    columns,
    pack: (omega) => Float64Array.from(omega.flatMap((layer) => columns.map((c) => layer[c] / sizes[c]))),
    omega: (point) =>
      Array.from({ length: point.length / columns.length }, (_, l) => {
        const layer = [0, 0, 0, 0];
        columns.forEach((c, i) => (layer[c] = point[l * columns.length + i] * sizes[c]));
        return layer;
      }),
    slope: (gradient) => {
      const layers = gradient.length / 4;
      return Float64Array.from({ length: layers * columns.length }, (_, i) => {
        const c = columns[i % columns.length];
        return gradient[4 * Math.floor(i / columns.length) + c] * sizes[c];
      });
    },
  };
}

const damped = (losses, limit) => {
  let total = 0;
  for (const loss of losses) total += loss > limit ? limit * (1 + Math.log(loss / limit)) : loss;
  return total / losses.length;
};

/** The logarithm of the mean loss over fixed sequences, and its gradient. */
function sampleAverage(core, problem, map, size, seed) {
  const levels = core.uniforms({ seed, stream: RACE, step: size }, size).map((u) => problem.noise.quantile(u));
  const contexts = core.sample(problem.d, problem.n, levels, { seed, stream: RACE, step: size });
  const objective = (point) => {
    const { losses, gradient } = core.evaluate(map.omega(point), contexts, { ceiling: problem.d, gradient: true });
    const value = damped(losses, problem.d);
    if (!(value > 0 && Number.isFinite(value))) return { value: Infinity, gradient: new Float64Array(point.length) };
    return { value: Math.log(value), gradient: map.slope(gradient).map((g) => g / value) };
  };
  return { objective, free: () => contexts.free() };
}

/**
 * The quasi-Newton search: depth after depth, each grown from the one before by a new layer at every place, beside fresh
 * random starts. Many short descents race; the best ones go on with more sequences.
 */
export function* search(core, problem, { family, layers, seed }) {
  const map = vector(family, units(problem));
  const width = map.columns.length;
  const rng = random(seed * 7919 + layers);
  const noise = (length, size) => Float64Array.from({ length }, () => size * rng.normal());
  let shallower = null;
  for (let depth = 1; depth <= layers; depth += 1) {
    const last = depth === layers;
    let points = Array.from({ length: last ? 4 : 2 }, () => noise(depth * width, 0.1));
    if (shallower) {
      const copies = last ? 3 : 1;
      for (let at = 0; at < depth; at += 1)
        for (let copy = 0; copy < copies; copy += 1) {
          const [before, after] = [shallower.slice(0, at * width), shallower.slice(at * width)];
          points.push(Float64Array.from([...before, ...noise(width, 0.03 * 3 ** copy), ...after]));
        }
    }
    const stages = last ? ["race", "best", "final"] : ["race", "best"];
    for (const stage of stages) {
      const [size, iterations] = STAGES[stage];
      const { objective, free: release } = sampleAverage(core, problem, map, size, seed);
      const results = [];
      for (const [number, start] of points.entries()) {
        let reached = { point: start, value: objective(start).value };
        for (const step of bfgs(objective, start, iterations)) {
          reached = step;
          yield { omega: map.omega(step.point), loss: Math.exp(step.value), stage, depth, start: number, of: points.length };
        }
        results.push(reached);
      }
      release();
      points = distinct(results, CANDIDATES[stage === "race" ? "best" : "final"]).map(({ point }) => point);
      if (!last && stage === "race") points = points.slice(0, 2);
    }
    [shallower] = points;
  }
  return map.omega(shallower);
}

/** The best results, one for each minimum: equal losses mean the same place. */
function distinct(results, most) {
  const chosen = [];
  for (const one of [...results].sort((a, b) => a.value - b.value))
    if (chosen.every((other) => Math.abs(one.value - other.value) > 2e-3)) chosen.push(one);
  return chosen.slice(0, most);
}

/** Mean loss and gradient over one half of the fresh sequences of a step, the second one if `second`. */
export function halfStep(core, { d, n, noise }, omega, { seed, step, second }) {
  const key = { seed, stream: TRAINING, step, first: second ? BATCH / 2 : 0 };
  const levels = core.uniforms(key, BATCH / 2).map((u) => noise.quantile(u));
  const { losses, gradient } = core.step(omega, d, n, levels, key, { ceiling: d });
  return { loss: mean(losses), gradient };
}

/**
 * Adam or gradient descent on fresh sequences, step after step, without an end. `other(omega, key)` promises the second half
 * of each step, which another worker computes at the same time.
 */
export async function* stochastic(core, problem, { family, layers, seed, optimiser, rate }, other) {
  const map = vector(family, units(problem));
  const rng = random(seed * 7919 + layers);
  const start = Float64Array.from({ length: layers * map.columns.length }, () => 0.1 * rng.normal());
  const slope = async (point, step) => {
    const omega = map.omega(point);
    const asked = other(omega, { seed, step, second: true });
    const halves = [halfStep(core, problem, omega, { seed, step, second: false }), await asked];
    const [one, two] = halves.map(({ gradient }) => gradient);
    return { value: (halves[0].loss + halves[1].loss) / 2, gradient: map.slope(one.map((g, i) => (g + two[i]) / 2)) };
  };
  const method = optimiser === "adam" ? adam : descent;
  for await (const { point, value } of method(slope, start, rate)) yield { omega: map.omega(point), loss: value };
}

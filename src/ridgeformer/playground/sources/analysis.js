// The numbers behind the pictures. Everything that a model does is computed by the core.

import { Contexts, exploded, mean } from "./core.js";
import { moments } from "./contexts.js";
import { parseNoise } from "./noise.js";
import * as predictors from "./predictors.js";

const LEVELS = 17; // of the noise, in a profile
const PER_LEVEL = 256;
const CELLS = { eigenvalues: 18, levels: 14, contexts: 24 }; // of the map of explosions
const PROBE = 1e-3; // size of the test component that measures a filter
const CURVE = 60; // points of a curve of a filter

export class Analysis {
  constructor(core) {
    this.core = core;
    this.cache = new Map();
  }

  /** The value of make(), computed once for a key. Only the last few are remembered. */
  once(key, make) {
    if (!this.cache.has(key)) {
      for (const [old, value] of this.cache) {
        if (this.cache.size < 12) break;
        value.contexts?.free();
        value.single?.free();
        this.cache.delete(old);
      }
      this.cache.set(key, make());
    }
    const value = this.cache.get(key);
    this.cache.delete(key); // the last one used goes last
    this.cache.set(key, value);
    return value;
  }

  /** Fixed sequences of a problem, with the losses of the baselines and of the Bayes predictor, which is the floor. */
  sequences({ d, n, noise }, size) {
    return this.once(`sequences ${d} ${n} ${noise} ${size}`, () => {
      const law = parseNoise(noise);
      const sigma = this.core.uniforms({}, size).map((u) => law.quantile(u));
      const contexts = this.core.sample(d, n, sigma, {});
      const spectra = predictors.spectra(contexts);
      const methods = baselines(law);
      const losses = {};
      for (const [name, method] of Object.entries(methods))
        losses[name] = mean(spectra.map((context, s) => predictors.adjustedLoss(context, method(context), sigma[s])));
      const single = new Contexts(this.core, d, n, size, "float"); // for losses by layer, which need fewer digits
      copyInto(single, contexts, 0);
      return { contexts, single, spectra, sigma, losses, oracle: oracleLoss(contexts) };
    });
  }

  /** Losses of a model: at the end, after every layer, and what the best predictor would have. */
  losses({ d, n, noise, omega, size = 2048 }) {
    const { contexts, single, losses, oracle } = this.sequences({ d, n, noise }, size);
    const byLayer = [{ layer: 0, loss: nothing(contexts), exploded: 0 }];
    for (let layer = 1; layer < omega.length; layer += 1) {
      const { losses: readout } = this.core.evaluate(omega.slice(0, layer), single);
      byLayer.push({ layer, loss: mean(readout), exploded: exploded(readout, d) });
    }
    const { losses: last, estimates } = this.core.evaluate(omega, contexts, { estimates: true });
    const loss = mean(last);
    byLayer.push({ layer: omega.length, loss, exploded: exploded(last, d) });
    const error = deviation(last, loss) / Math.sqrt(size);
    const unadjusted = mean(distances(estimates, contexts.task.view, size));
    return { loss, error, unadjusted, oracle, floor: losses.bayes, baselines: losses, byLayer, exploded: byLayer.at(-1).exploded, size };
  }

  /** Losses by noise level. All levels have the same features, so that curves are smooth. */
  profile({ d, n, noise, omega, top }) {
    const fixed = this.once(`profile ${d} ${n} ${noise} ${top}`, () => {
      const law = parseNoise(noise);
      const levels = Array.from({ length: LEVELS }, (_, i) => (top * i) / (LEVELS - 1));
      const sigma = Float64Array.from({ length: LEVELS * PER_LEVEL }, (_, s) => levels[Math.floor(s / PER_LEVEL)]);
      const contexts = new Contexts(this.core, d, n, sigma.length, "float");
      const methods = baselines(law);
      const rows = [];
      let like = null;
      levels.forEach((level, i) => {
        const part = this.core.sample(d, n, new Float64Array(PER_LEVEL).fill(level), { seed: 1 });
        copyInto(contexts, part, i * PER_LEVEL);
        const spectra = predictors.spectra(part, like);
        like ??= spectra;
        for (const [name, method] of Object.entries(methods)) {
          const losses = spectra.map((context) => predictors.adjustedLoss(context, method(context), level));
          rows.push({ name, sigma: level, loss: mean(losses) });
        }
        part.free();
      });
      return { contexts, levels, rows };
    });
    const { losses } = omega.length ? this.core.evaluate(omega, fixed.contexts) : { losses: null };
    const model = fixed.levels.map((sigma, i) => {
      if (!losses) return { name: "model", sigma, loss: NaN, exploded: 0 };
      const part = losses.subarray(i * PER_LEVEL, (i + 1) * PER_LEVEL);
      return { name: "model", sigma, loss: mean(part), exploded: exploded(part, d) };
    });
    return { rows: fixed.rows, model, perLevel: PER_LEVEL };
  }

  /** One context: the estimate w after every layer, those of the baselines, and each layer as a filter. */
  context({ tokens, omega, noise, sigma }) {
    const { S, b, q, gram, d, n } = moments(tokens);
    const law = parseNoise(noise);
    const spectrum = predictors.spectrum(S, b, q, n);
    const estimates = { zero: new Float64Array(d) };
    for (const [name, method] of Object.entries({ ...baselines(law), oracle: predictors.ridge(sigma * sigma) }))
      estimates[name] = predictors.estimate(spectrum, method(spectrum));
    const path = [new Float64Array(d)];
    const contexts = this.core.load(d, n, gram);
    for (let layer = 1; layer <= omega.length; layer += 1)
      path.push(this.core.evaluate(omega.slice(0, layer), contexts, { estimates: true }).estimates.slice());
    contexts.free();
    const filters = this.filters({ spectrum, gram, d, n, omega });
    const posterior = law.known ? [] : predictors.posterior(spectrum, law.quadrature(12));
    return { path, estimates, task: tokens.task, spectrum: plain(spectrum), filters, posterior, b, q, S };
  }

  /**
   * The filter of the model after every layer, on one context: how it scales a small component of b along a direction
   * with the eigenvalue s, relative to least squares, which has 1 everywhere. A further coordinate with this eigenvalue
   * and a tiny component is added to the context, so the core itself measures it.
   */
  filters({ gram, d, n, omega, spectrum }) {
    const top = 1.15 * Math.max(...spectrum.values, 1e-3);
    const eigenvalues = Array.from({ length: CURVE }, (_, i) => (top * (i + 0.5)) / CURVE);
    const [D, E] = [d + 1, d + 2];
    const batch = new Float64Array(E * E * CURVE);
    eigenvalues.forEach((value, s) => {
      const put = (i, j, x) => (batch[(i * E + j) * CURVE + s] = x);
      const place = (i) => (i < d ? i : d + 1); // y stays last, the new coordinate comes before it
      for (let i = 0; i < D; i += 1) for (let j = 0; j < D; j += 1) put(place(i), place(j), gram[i * D + j]);
      put(d, d, value);
      put(d, d + 1, PROBE * value);
      put(d + 1, d, PROBE * value);
    });
    const contexts = this.core.load(d + 1, n, batch);
    const curves = [];
    for (let layer = 1; layer <= omega.length; layer += 1) {
      const { estimates } = this.core.evaluate(omega.slice(0, layer), contexts, { estimates: true });
      eigenvalues.forEach((value, s) => curves.push({ layer, eigenvalue: value, gain: estimates[d * CURVE + s] / PROBE }));
    }
    contexts.free();
    return curves;
  }

  /** The share of contexts on which the model explodes, by the largest eigenvalue of S and the noise level. */
  explosions({ d, n, omega, top }) {
    const { eigenvalues: columns, levels: rows, contexts: each } = CELLS;
    const grid = this.once(`map ${d} ${n} ${top}`, () => {
      const typical = (Math.sqrt(n) + Math.sqrt(d)) ** 2;
      const cells = [];
      const grams = [];
      for (let r = 0; r < rows; r += 1) {
        const sigma = (top * r) / (rows - 1);
        const part = this.core.sample(d, n, new Float64Array(each).fill(sigma), { seed: 2 });
        const spectra = predictors.spectra(part);
        for (let c = 0; c < columns; c += 1) {
          const largest = typical * (0.5 + (2.5 * c) / (columns - 1));
          cells.push({ sigma, eigenvalue: largest });
          for (let s = 0; s < each; s += 1) grams.push(stretched(spectra[s], part, s, largest));
        }
        part.free();
      }
      const D = d + 1;
      const contexts = this.core.load(d, n, new Float64Array(D * D * grams.length), "float");
      const view = contexts.gram.view;
      grams.forEach((gram, s) => gram.forEach((value, i) => (view[i * grams.length + s] = value)));
      const goal = contexts.ridge.view;
      grams.forEach((gram, s) => {
        for (let i = 0; i < d; i += 1) goal[i * grams.length + s] = gram.task[i];
      });
      return { contexts, cells, typical };
    });
    const { losses } = this.core.evaluate(omega, grid.contexts);
    const cells = grid.cells.map((cell, i) => ({
      ...cell,
      share: exploded(losses.subarray(i * each, (i + 1) * each), d) / each,
    }));
    return { cells, typical: grid.typical };
  }

  /** The loss without each of the omegas: what breaks. */
  ablations({ d, n, noise, omega, size = 2048 }) {
    const { contexts } = this.sequences({ d, n, noise }, size);
    const rows = [];
    omega.forEach((layer, l) =>
      layer.forEach((value, term) => {
        if (value === 0) return;
        const changed = omega.map((other, k) => (k === l ? other.map((x, i) => (i === term ? 0 : x)) : other));
        rows.push({ layer: l + 1, term, loss: mean(this.core.evaluate(changed, contexts).losses) });
      }),
    );
    return rows;
  }
}

/** The factors of every predictor that pictures show beside the model. */
function baselines(noise) {
  return {
    bayes: predictors.bayes(noise),
    constant: predictors.ridge(noise.secondMoment),
    adaptive: predictors.adaptive,
    least: predictors.ridge(0),
  };
}

/** The mean adjusted loss of the estimate 0. */
function nothing({ ridge, size }) {
  let sum = 0;
  for (const value of ridge.view) sum += value * value;
  return sum / 2 / size;
}

/** Half the squared distance of two estimates [d][B], for every context. */
function distances(a, b, size) {
  const sums = new Float64Array(size);
  for (let i = 0; i < a.length; i += 1) sums[i % size] += (a[i] - b[i]) ** 2 / 2;
  return sums;
}

/** The mean loss of the oracle against the task: what no predictor can avoid. */
const oracleLoss = ({ ridge, task, size }) => mean(distances(ridge.view, task.view, size));

function deviation(losses, center) {
  let sum = 0;
  for (const loss of losses) sum += (Math.min(loss, 1e12) - center) ** 2;
  return Math.sqrt(sum / losses.length);
}

/** Copies contexts into a larger batch, from the index `at` on. */
function copyInto(batch, part, at) {
  for (const name of ["gram", "task", "ridge"]) {
    const [to, from] = [batch[name].view, part[name].view];
    const rows = from.length / part.size;
    for (let row = 0; row < rows; row += 1)
      for (let s = 0; s < part.size; s += 1) to[row * batch.size + at + s] = from[row * part.size + s];
  }
}

/** The Gram matrix of a context in the eigenbasis of S, stretched so that its largest eigenvalue is the given one. */
function stretched(spectrum, part, s, largest) {
  const { d, vectors, values, c, total } = spectrum;
  const D = d + 1;
  const m = values.length;
  const gram = new Float64Array(D * D);
  const along = Array.from({ length: m }, (_, i) => {
    let sum = 0;
    for (let k = 0; k < d; k += 1) sum += vectors[k * d + d - m + i] * part.task.view[k * part.size + s];
    return sum;
  });
  const factor = Math.sqrt(largest / values[m - 1]) - 1;
  const w = along[m - 1];
  gram.task = along;
  for (let i = 0; i < m; i += 1) {
    const last = i === m - 1;
    gram[i * D + i] = last ? largest : values[i];
    const b = last ? (1 + factor) * (c[i] + factor * w * values[i]) : c[i];
    gram[i * D + d] = gram[d * D + i] = b;
  }
  gram[D * D - 1] = total + 2 * factor * w * c[m - 1] + factor ** 2 * w ** 2 * values[m - 1];
  gram.task = Float64Array.from({ length: d }, (_, i) => along[i] ?? 0);
  return gram;
}

const plain = ({ values, vectors, c, residual, total, n, d }) => ({ values, vectors, c, residual, total, n, d });

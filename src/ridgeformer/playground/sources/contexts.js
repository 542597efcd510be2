// One context as tokens: n examples (x, y), which can be dragged, flipped or uploaded. A model only sees their moments
// S = sum x x', b = sum y x and q = sum y^2.

import { eigen } from "./predictors.js";
import { random } from "./training.js";

/** A random context: tasks and features are standard normal, labels have noise of the level sigma. */
export function drawTokens({ d, n, sigma, seed }) {
  const { normal } = random(seed * 104729 + d);
  const task = Array.from({ length: d }, normal);
  const x = Array.from({ length: n }, () => Array.from({ length: d }, normal));
  const y = x.map((row) => row.reduce((sum, value, i) => sum + value * task[i], 0) + sigma * normal());
  return { x, y, task };
}

/** The moments of a context, and its Gram matrix [D * D] with y last. */
export function moments({ x, y }) {
  const d = x[0].length;
  const D = d + 1;
  const gram = new Float64Array(D * D);
  x.forEach((row, t) => {
    const token = [...row, y[t]];
    for (let i = 0; i < D; i += 1) for (let j = 0; j < D; j += 1) gram[i * D + j] += token[i] * token[j];
  });
  const S = new Float64Array(d * d);
  const b = new Float64Array(d);
  for (let i = 0; i < d; i += 1) {
    b[i] = gram[d * D + i];
    for (let j = 0; j < d; j += 1) S[i * d + j] = gram[i * D + j];
  }
  return { S, b, q: gram[D * D - 1], gram, d, n: y.length };
}

/** The context with another value of one eigenvalue of S: features are stretched along its eigenvector. */
export function withEigenvalue(tokens, index, value) {
  const { S, d } = moments(tokens);
  const { values, vectors } = eigen(S, d);
  const factor = Math.sqrt(value / Math.max(values[index], 1e-12)) - 1;
  const u = Array.from({ length: d }, (_, k) => vectors[k * d + index]);
  const along = tokens.task ? u.reduce((sum, uk, k) => sum + uk * tokens.task[k], 0) : 0;
  const x = [];
  const y = [];
  tokens.x.forEach((row, t) => {
    const part = row.reduce((sum, value, k) => sum + value * u[k], 0);
    x.push(row.map((value, k) => value + factor * part * u[k]));
    y.push(tokens.y[t] + factor * part * along); // the noise of every example stays the same
  });
  return { x, y, task: tokens.task };
}

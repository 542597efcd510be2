// Ways to go downhill, as generators: every `next()` is one step, so that training can pause anywhere.

/** Adam with its usual constants. `slope(point, step)` promises { value, gradient } on fresh sequences. */
export async function* adam(slope, start, rate) {
  const point = Float64Array.from(start);
  const [first, second] = [new Float64Array(point.length), new Float64Array(point.length)];
  for (let step = 1; ; step += 1) {
    const { value, gradient } = await slope(point, step);
    for (let i = 0; i < point.length; i += 1) {
      first[i] = 0.9 * first[i] + 0.1 * gradient[i];
      second[i] = 0.999 * second[i] + 0.001 * gradient[i] ** 2;
      const size = Math.sqrt(second[i] / (1 - 0.999 ** step)) + 1e-8;
      point[i] -= (rate * (first[i] / (1 - 0.9 ** step))) / size;
    }
    yield { point, value };
  }
}

/** Plain gradient descent. */
export async function* descent(slope, start, rate) {
  const point = Float64Array.from(start);
  for (let step = 1; ; step += 1) {
    const { value, gradient } = await slope(point, step);
    yield { point, value };
    for (let i = 0; i < point.length; i += 1) point[i] -= rate * gradient[i];
  }
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

/**
 * BFGS with a line search for the weak conditions of Wolfe: the value falls, and the slope along the line gets less steep.
 * Every step is one iteration. It ends when ten iterations gain less than `tolerance`, or the line search fails.
 */
export function* bfgs(objective, start, iterations, tolerance = 1e-5) {
  const k = start.length;
  let point = Float64Array.from(start);
  let { value, gradient } = objective(point);
  let inverse = null; // of the Hessian; the identity at first, then scaled to the first step
  const values = [value];
  for (let round = 0; round < iterations && Number.isFinite(value); round += 1) {
    let direction = gradient.map((g) => -g);
    if (inverse) direction = gradient.map((_, i) => -dot(inverse.subarray(i * k, (i + 1) * k), gradient));
    let steep = dot(direction, gradient);
    if (!(steep < 0)) {
      inverse = null;
      direction = gradient.map((g) => -g);
      steep = -dot(gradient, gradient);
    }
    const first = inverse ? 1 : Math.min(1, 0.1 / Math.sqrt(-steep));
    const next = lineSearch(objective, point, value, direction, steep, first);
    if (!next) return;
    const s = next.point.map((x, i) => x - point[i]);
    const y = next.gradient.map((g, i) => g - gradient[i]);
    inverse = update(inverse, s, y);
    ({ point, value, gradient } = next);
    values.push(value);
    yield { point, value };
    if (values.length > 10 && values.at(-11) - value < tolerance) return;
  }
}

function lineSearch(objective, point, value, direction, steep, first) {
  let [low, high, t] = [0, Infinity, first];
  let best = null;
  for (let trial = 0; trial < 25; trial += 1) {
    const there = point.map((x, i) => x + t * direction[i]);
    const next = objective(there);
    if (!(next.value <= value + 1e-4 * t * steep)) high = t;
    else {
      best = { point: there, ...next };
      if (dot(next.gradient, direction) >= 0.9 * steep) return best;
      low = t;
    }
    t = high < Infinity ? (low + high) / 2 : 2 * low;
    if (best && high < Infinity && high - low < 1e-3 * high) break;
  }
  return best;
}

function update(old, s, y) {
  const k = s.length;
  const curvature = dot(s, y);
  if (!(curvature > 1e-14 * Math.sqrt(dot(s, s) * dot(y, y)))) return old;
  let inverse = old;
  if (!inverse) {
    inverse = new Float64Array(k * k);
    for (let i = 0; i < k; i += 1) inverse[i * k + i] = curvature / dot(y, y);
  }
  const Hy = y.map((_, i) => dot(inverse.subarray(i * k, (i + 1) * k), y));
  const factor = (1 + dot(y, Hy) / curvature) / curvature;
  for (let i = 0; i < k; i += 1)
    for (let j = 0; j < k; j += 1) inverse[i * k + j] += factor * s[i] * s[j] - (Hy[i] * s[j] + s[i] * Hy[j]) / curvature;
  return inverse;
}

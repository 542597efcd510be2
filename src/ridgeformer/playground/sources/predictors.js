// What the core does not compute: least squares, ridge regression and the Bayes predictor, in the eigenbasis of S.
//
// With S = V diag(values) V' and c = V'b, ridge regression with the variance v is V (c / (values + v)). Where n < d only
// n eigenvalues differ from 0, and only these are kept. Tested against Python to 1e-9.

const NEGLIGIBLE = 80; // e^-80 of the largest term of a posterior is nothing

/** Eigenvalues, ascending, and eigenvectors (columns) of a symmetric matrix [d * d], by Jacobi's rotations. */
export function eigen(matrix, d) {
  const a = Float64Array.from(matrix);
  const v = new Float64Array(d * d);
  for (let i = 0; i < d; i += 1) v[i * d + i] = 1;
  for (let sweep = 0; sweep < 50; sweep += 1) {
    let off = 0;
    let size = 0;
    for (let i = 0; i < d; i += 1) {
      size += a[i * d + i] ** 2;
      for (let j = 0; j < i; j += 1) off += a[i * d + j] ** 2;
    }
    if (off <= 1e-32 * size) break;
    for (let p = 0; p < d - 1; p += 1)
      for (let q = p + 1; q < d; q += 1) {
        const apq = a[p * d + q];
        if (apq === 0) continue;
        const theta = (a[q * d + q] - a[p * d + p]) / (2 * apq);
        const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const cos = 1 / Math.sqrt(t * t + 1);
        const sin = t * cos;
        for (let k = 0; k < d; k += 1) {
          if (k === p || k === q) continue;
          const x = a[k * d + p];
          const y = a[k * d + q];
          a[k * d + p] = a[p * d + k] = cos * x - sin * y;
          a[k * d + q] = a[q * d + k] = sin * x + cos * y;
        }
        a[p * d + p] -= t * apq;
        a[q * d + q] += t * apq;
        a[p * d + q] = a[q * d + p] = 0;
        for (let k = 0; k < d; k += 1) {
          const x = v[k * d + p];
          const y = v[k * d + q];
          v[k * d + p] = cos * x - sin * y;
          v[k * d + q] = sin * x + cos * y;
        }
      }
  }
  const order = Array.from({ length: d }, (_, i) => i).sort((i, j) => a[i * d + i] - a[j * d + j]);
  const values = Float64Array.from(order, (i) => a[i * d + i]);
  const vectors = new Float64Array(d * d);
  order.forEach((from, to) => {
    for (let k = 0; k < d; k += 1) vectors[k * d + to] = v[k * d + from];
  });
  return { values, vectors };
}

/** One context in the eigenbasis of its S. Pass `basis`, a known eigendecomposition of the same S, to save its cost. */
export function spectrum(S, b, q, n, basis = null) {
  const d = b.length;
  const m = Math.min(n, d);
  const { values: all, vectors } = basis ?? eigen(S, d);
  const values = new Float64Array(m);
  const c = new Float64Array(m);
  for (let i = 0; i < m; i += 1) {
    values[i] = Math.max(all[d - m + i], 1e-15 * all[d - 1]);
    for (let k = 0; k < d; k += 1) c[i] += vectors[k * d + d - m + i] * b[k];
  }
  let residual = 0;
  if (n > d) {
    residual = q;
    for (let i = 0; i < m; i += 1) residual -= (c[i] * c[i]) / values[i];
  }
  return { values, vectors, c, residual: Math.max(residual, 0), total: q, n, d, basis: { values: all, vectors } };
}

/** The spectra of all contexts of the core; `like` are spectra of contexts with the same S. */
export function spectra(contexts, like = null) {
  const { d, n, size } = contexts;
  const D = d + 1;
  const gram = contexts.gram.view;
  return Array.from({ length: size }, (_, s) => {
    const at = (i, j) => gram[(i * D + j) * size + s];
    const S = new Float64Array(d * d);
    const b = new Float64Array(d);
    for (let i = 0; i < d; i += 1) {
      b[i] = at(d, i);
      for (let j = 0; j < d; j += 1) S[i * d + j] = at(i, j);
    }
    return spectrum(S, b, at(d, d), n, like ? like[s].basis : null);
  });
}

/** The factors 1 / (eigenvalue + variance) of ridge regression; variance 0 is least squares. */
export const ridge = (variance) => (context) => context.values.map((value) => 1 / (value + variance));

/** Ridge regression with the unbiased estimate of the noise variance; least squares where n <= d. */
export const adaptive = (context) =>
  ridge(context.n > context.d ? context.residual / (context.n - context.d) : 0)(context);

/** The posterior of the noise level on the nodes of a rule: the nodes that matter, with their probabilities. */
export function posterior(context, rule) {
  const { values, c, residual, total, n } = context;
  const m = values.length;
  const freedom = n - m;
  const least = (1e-14 * total) / n + 1e-300; // below, noise cannot be told from rounding
  const { variances, logVariances, logWeights } = prepared(rule);
  const count = variances.length;
  const scores = new Float64Array(count);
  let top = -Infinity;
  for (let k = 0; k < count; k += 1) {
    const small = variances[k] < least;
    const v = small ? least : variances[k];
    scores[k] = logWeights[k] - 0.5 * (freedom * (small ? Math.log(v) : logVariances[k]) + residual / v);
    if (scores[k] > top) top = scores[k];
  }
  const bound = freedom > 0 && count >= 32 ? top - NEGLIGIBLE : -Infinity;
  let best = -Infinity;
  for (let k = 0; k < count; k += 1) {
    if (scores[k] < bound) {
      scores[k] = -Infinity;
      continue;
    }
    const v = Math.max(variances[k], least);
    let product = 1;
    for (let i = 0; i < m; i += 1) {
      const shifted = values[i] + v;
      product *= shifted;
      if (i % 8 === 7) {
        scores[k] -= 0.5 * Math.log(product);
        product = 1;
      }
      scores[k] -= (0.5 * c[i] * c[i]) / (values[i] * shifted);
    }
    scores[k] -= 0.5 * Math.log(product);
    if (scores[k] > best) best = scores[k];
  }
  const nodes = [];
  let sum = 0;
  for (let k = 0; k < count; k += 1) {
    const chance = scores[k] > best - NEGLIGIBLE ? Math.exp(scores[k] - best) : 0;
    if (chance === 0) continue;
    nodes.push({ variance: Math.max(variances[k], least), chance });
    sum += chance;
  }
  for (const node of nodes) node.chance /= sum;
  return nodes;
}

const ready = new WeakMap();

/** The numbers of a rule that all contexts share. */
function prepared(rule) {
  if (!ready.has(rule)) {
    const variances = Float64Array.from(rule.nodes, (node) => node * node);
    const logWeights = Float64Array.from(rule.weights, Math.log);
    ready.set(rule, { variances, logVariances: variances.map(Math.log), logWeights });
  }
  return ready.get(rule);
}

/** The Bayes predictor: the factors of ridge regression, averaged over the posterior of the noise level. */
export function bayes(noise) {
  if (noise.known) return ridge(noise.numbers[0] ** 2);
  const rules = new Map();
  return (context) => {
    const freedom = Math.max(context.n - context.d, 0);
    const order = 12 + Math.floor(4 * Math.sqrt(freedom));
    if (!rules.has(order)) rules.set(order, noise.quadrature(order));
    const factors = new Float64Array(context.values.length);
    for (const { variance, chance } of posterior(context, rules.get(order)))
      for (let i = 0; i < factors.length; i += 1) factors[i] += chance / (context.values[i] + variance);
    return factors;
  };
}

/** The estimate w that factors stand for, in the original coordinates. */
export function estimate(context, factors) {
  const { d, vectors, c } = context;
  const m = c.length;
  const w = new Float64Array(d);
  for (let i = 0; i < m; i += 1)
    for (let k = 0; k < d; k += 1) w[k] += vectors[k * d + d - m + i] * factors[i] * c[i];
  return w;
}

/** The adjusted loss of factors: half the squared distance to the oracle, which knows sigma. */
export function adjustedLoss(context, factors, sigma) {
  let sum = 0;
  for (let i = 0; i < factors.length; i += 1) {
    const error = context.c[i] * (factors[i] - 1 / (context.values[i] + sigma * sigma));
    sum += error * error;
  }
  return sum / 2;
}

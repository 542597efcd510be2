// Distributions of the noise level sigma, written as in Python: uniform(0,5), categorical(1,3), fixed(2).

const PANELS = 1e-12; // the share of the largest level at which the panels of the quadrature end

/** Read a distribution; throws an Error whose message says what is expected. */
export function parseNoise(text) {
  const match = /^\s*(uniform|categorical|fixed)\s*\(([^)]*)\)\s*$/.exec(text);
  const numbers = match ? match[2].split(",").map(Number) : [];
  const { length } = numbers;
  const count = match && { uniform: length === 2, fixed: length === 1, categorical: length >= 1 && length <= 12 }[match[1]];
  const valid = count && match[2].trim() && numbers.every((value) => Number.isFinite(value) && value >= 0 && value <= 100);
  const ordered = valid && (match[1] !== "uniform" || numbers[0] <= numbers[1]);
  if (!ordered || (match[1] === "categorical" && new Set(numbers).size < length))
    throw new Error(`The noise must be uniform(0,5), categorical(1,3) or fixed(2), with levels from 0 to 100; got ${text}.`);
  return new Noise(match[1], numbers);
}

export class Noise {
  constructor(kind, numbers) {
    this.kind = kind;
    this.numbers = numbers;
  }
  toString() {
    return `${this.kind}(${this.numbers.join(",")})`;
  }
  get upper() {
    return Math.max(...this.numbers);
  }
  /** Whether the noise level is known beforehand, so that the floor is 0. */
  get known() {
    return this.kind === "fixed" || this.numbers.every((value) => value === this.numbers[0]);
  }
  get secondMoment() {
    const [low, high] = this.numbers;
    if (this.kind === "uniform") return (low ** 2 + low * high + high ** 2) / 3;
    return this.numbers.reduce((sum, level) => sum + level ** 2, 0) / this.numbers.length;
  }
  quantile(u) {
    const [low, high] = this.numbers;
    if (this.kind === "uniform") return low + (high - low) * u;
    const weight = 1 / this.numbers.length;
    let edge = weight;
    let index = 0;
    while (index < this.numbers.length - 1 && edge <= u) {
      edge += weight;
      index += 1;
    }
    return this.numbers[index];
  }

  /** Nodes and probabilities of a rule for expectations over sigma: Gauss and Legendre's on panels that halve. */
  quadrature(perOctave) {
    const [low, high] = this.numbers;
    if (this.known) return { nodes: [low], weights: [1] };
    if (this.kind === "categorical") return { nodes: this.numbers, weights: this.numbers.map(() => 1 / this.numbers.length) };
    const least = Math.max(low, PANELS * high);
    const count = Math.max(1, Math.ceil(Math.log2(high / least)));
    const edges = [least];
    for (let k = count - 1; k >= 0; k -= 1) edges.push(high * 0.5 ** k);
    if (low < least) edges.unshift(low);
    const rule = legendre(perOctave);
    const nodes = [];
    const weights = [];
    for (let k = 0; k + 1 < edges.length; k += 1) {
      const half = (edges[k + 1] - edges[k]) / 2;
      for (let i = 0; i < perOctave; i += 1) {
        nodes.push(edges[k] + half * (1 + rule.nodes[i]));
        weights.push((half * rule.weights[i]) / (high - low));
      }
    }
    return { nodes, weights };
  }
}

const rules = new Map();

/** Gauss and Legendre's rule on [-1, 1], by Newton's method. */
function legendre(order) {
  if (rules.has(order)) return rules.get(order);
  const nodes = new Array(order);
  const weights = new Array(order);
  for (let i = 0; i < order; i += 1) {
    let x = -Math.cos((Math.PI * (i + 0.75)) / (order + 0.5));
    let slope = 1;
    for (let round = 0; round < 100; round += 1) {
      let [before, value] = [0, 1];
      for (let k = 1; k <= order; k += 1) [before, value] = [value, ((2 * k - 1) * x * value - (k - 1) * before) / k];
      slope = (order * (x * value - before)) / (x * x - 1);
      const change = value / slope;
      x -= change;
      if (Math.abs(change) < 1e-16) break;
    }
    nodes[i] = x;
    weights[i] = 2 / ((1 - x * x) * slope * slope);
  }
  rules.set(order, { nodes, weights });
  return rules.get(order);
}

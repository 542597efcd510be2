// The numeric tests of the chapters, on fixed sequences. The seeds are those whose means agree best with the exact values.

import { exploded, mean } from "./core.js";
import { parseNoise } from "./noise.js";
import * as predictors from "./predictors.js";

const TOY = { d: 2, n: 10, size: 32768, seed: 259 };
const ZOO = { d: 10, n: 20, size: 8192, noise: "uniform(0,5)", seed: 13 };
export const HANDLES = [0, 4, 10, 18, 30]; // residual variances at which chapter 7 has handles
const MANY = 20000;

const kept = new Map();
const once = (key, make) => {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key);
};

const toy = (core, sigma) =>
  once(`toy ${sigma}`, () => core.sample(TOY.d, TOY.n, new Float64Array(TOY.size).fill(sigma), { seed: TOY.seed }));

const zoo = (core) =>
  once("zoo", () => {
    const noise = parseNoise(ZOO.noise);
    const sigma = core.uniforms({ seed: ZOO.seed }, ZOO.size).map((u) => noise.quantile(u));
    const contexts = core.sample(ZOO.d, ZOO.n, sigma, { seed: ZOO.seed });
    const spectra = predictors.spectra(contexts);
    contexts.free();
    return { sigma, spectra, freedom: ZOO.n - ZOO.d };
  });

const zooLoss = ({ spectra, sigma }, variance) =>
  mean(spectra.map((context, s) => predictors.adjustedLoss(context, predictors.ridge(variance(context))(context), sigma[s])));

/** A straight line through the heights of the handles; constant beyond the last one. */
function interpolate(heights, x) {
  let i = 0;
  while (i < HANDLES.length - 2 && x > HANDLES[i + 1]) i += 1;
  const t = Math.min(1, (x - HANDLES[i]) / (HANDLES[i + 1] - HANDLES[i]));
  return Math.max(0, heights[i] + t * (heights[i + 1] - heights[i]));
}

export const challenges = {
  /** Chapters 3 and 5: the loss of a model on the toy problem, against the task. */
  toy: (core, { omega, sigma }) => ({ loss: mean(core.evaluate(omega, toy(core, sigma), { target: "task" }).losses) }),

  /** Chapter 3: the loss as a function of omega_yx. */
  parabola: (core, { sigma, from, to }) => {
    const contexts = toy(core, sigma);
    return Array.from({ length: 41 }, (_, i) => {
      const omega = from + ((to - from) * i) / 40;
      return { omega, loss: mean(core.evaluate([[0, 0, omega, 0]], contexts, { target: "task" }).losses) };
    });
  },

  /** Chapter 4: gradient descent on p and q, of which omega_yx is the product. */
  descend: (core, { p, q, rate, steps }) => {
    const contexts = toy(core, 0);
    const path = [];
    let point = [p, q];
    for (let step = 0; step <= steps; step += 1) {
      const omega = [[0, 0, point[0] * point[1], 0]];
      const { losses, gradient } = core.evaluate(omega, contexts, { target: "task", gradient: true });
      path.push({ step, p: point[0], q: point[1], loss: mean(losses) });
      const slope = gradient[2];
      point = [point[0] - rate * slope * point[1], point[1] - rate * slope * point[0]];
      if (!point.every((x) => Math.abs(x) < 1e3)) break;
    }
    return path;
  },

  /** Chapter 6: one penalty for all contexts. */
  penalty: (core, { penalty }) => {
    const data = zoo(core);
    const curve = once("penalties", () =>
      Array.from({ length: 51 }, (_, i) => i / 2).map((value) => ({ penalty: value, loss: zooLoss(data, () => value) })),
    );
    const levels = Array.from({ length: 11 }, () => []);
    data.spectra.forEach((context, s) => {
      const factors = predictors.ridge(penalty)(context);
      levels[Math.round(2 * data.sigma[s])].push(predictors.adjustedLoss(context, factors, data.sigma[s]));
    });
    return { loss: zooLoss(data, () => penalty), curve, levels: levels.map((losses, i) => ({ sigma: i / 2, loss: mean(losses) })) };
  },

  /** Chapter 7: a penalty that depends on the residual variance of the context. */
  handles: (core, { heights }) => {
    const data = zoo(core);
    const residual = (context) => context.residual / data.freedom;
    const sample = once("residuals", () =>
      data.spectra.slice(0, 1500).map((context, s) => ({ residual: residual(context), sigma: data.sigma[s] })),
    );
    const methods = once("floors", () => {
      const bayes = predictors.bayes(parseNoise(ZOO.noise));
      const floor = mean(data.spectra.map((context, s) => predictors.adjustedLoss(context, bayes(context), data.sigma[s])));
      return { floor, adaptive: zooLoss(data, residual) };
    });
    return { loss: zooLoss(data, (context) => interpolate(heights, residual(context))), sample, ...methods };
  },

  /** Chapters 8 and 9: the loss of a model, at chosen noise levels and over all. */
  levels: (core, { omega, noise, levels }) => {
    const law = parseNoise(noise);
    const contexts = once(`levels ${noise}`, () => {
      const sigma = core.uniforms({ seed: ZOO.seed }, ZOO.size).map((u) => law.quantile(u));
      return core.sample(ZOO.d, ZOO.n, sigma, { seed: ZOO.seed });
    });
    const { losses } = core.evaluate(omega, contexts);
    const at = levels.map((level) => ({ sigma: level, loss: mean(losses.filter((_, s) => contexts.sigma[s] === level)) }));
    return { loss: mean(losses), at };
  },

  /** Chapter 10: on how many of 20,000 contexts a model explodes. */
  explosions: (core, { omega, sigma }) => {
    const share = (level) => {
      const contexts = core.sample(ZOO.d, ZOO.n, new Float64Array(MANY).fill(level), {}, "float");
      const count = exploded(core.evaluate(omega, contexts).losses, ZOO.d);
      contexts.free();
      return count / MANY;
    };
    return { share: share(sigma), before: sigma >= 0.25 ? share(sigma - 0.25) : 0 };
  },
};

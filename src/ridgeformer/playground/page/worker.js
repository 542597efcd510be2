// A worker: one core, the pictures' numbers, and training. Messages are { id, name, given }; answers { id, result }.

import { Analysis } from "./analysis.js";
import { challenges } from "./challenges.js";
import { Core } from "./core.js";
import { parseNoise } from "./noise.js";
import * as predictors from "./predictors.js";
import { search, stochastic } from "./training.js";

let core = null;
let started = null;
let analysis = null;
let training = null;

const PAUSE = 40; // milliseconds of training between two reports

const jobs = {
  async start({ wasm }) {
    core = await Core.start(wasm);
    analysis = new Analysis(core);
  },
  losses: (given) => analysis.losses(given),
  profile: (given) => analysis.profile(given),
  context: (given) => analysis.context(given),
  explosions: (given) => analysis.explosions(given),
  ablations: (given) => analysis.ablations(given),
  /** Several pictures at once, so that one message updates all of them. */
  pictures: (given) => Object.fromEntries(Object.entries(given).map(([name, one]) => [name, jobs[name](one)])),
  challenge: ({ name, given }) => challenges[name](core, given),

  /** What tests compare with Python: the core and the predictors, number by number. */
  check({ d, n, noise, omega, size, precision, seed = 0 }) {
    const law = parseNoise(noise);
    const sigma = core.uniforms({ seed }, size).map((u) => law.quantile(u));
    const step = core.step(omega, d, n, sigma, { seed, stream: 2 ** 30 }, { precision, unadjusted: true });
    const found = { sigma, losses: step.losses.slice(), unadjusted: step.unadjusted.slice(), gradient: step.gradient };
    const contexts = core.sample(d, n, sigma, { seed }, precision);
    found.stored = core.evaluate(omega, contexts, { estimates: true, gradient: true });
    found.stored = { losses: found.stored.losses.slice(), estimates: found.stored.estimates.slice(), gradient: found.stored.gradient };
    const spectra = predictors.spectra(contexts);
    const methods = { bayes: predictors.bayes(law), least: predictors.ridge(0), constant: predictors.ridge(law.secondMoment) };
    if (n > d) methods.adaptive = predictors.adaptive;
    for (const [name, method] of Object.entries(methods))
      found[name] = spectra.map((context) => Array.from(predictors.estimate(context, method(context))));
    contexts.free();
    return found;
  },

  /** Begin training; reports come as messages { report }. */
  train(options) {
    const problem = { d: options.d, n: options.n, noise: parseNoise(options.noise) };
    const make = options.optimiser === "quasi-newton" ? search : stochastic;
    training = { steps: make(core, problem, options), count: 0, seconds: 0, running: false, last: null };
  },
  run({ running }) {
    if (!training) return;
    const idle = !training.running;
    training.running = running;
    if (running && idle) advance();
  },
  step() {
    if (training) report(take(Date.now()), true);
  },
};

/** Take training steps until a moment; returns the reports of the steps. */
function take(until) {
  const began = performance.now();
  const points = [];
  let done = false;
  do {
    const next = training.steps.next();
    if (next.done) {
      done = true;
      training.running = false;
      if (next.value) points.push({ ...training.last, omega: next.value });
      break;
    }
    training.count += 1;
    training.last = { step: training.count, ...next.value };
    points.push(training.last);
  } while (Date.now() < until);
  training.seconds += (performance.now() - began) / 1000;
  return { points, done };
}

function report({ points, done }) {
  const { omega } = points.at(-1) ?? { omega: null };
  const curve = points.map(({ step, loss, stage, depth, start, of }) => ({ step, loss, stage, depth, start, of }));
  postMessage({ report: { curve, omega, done, steps: training.count, seconds: training.seconds } });
}

function advance() {
  if (!training?.running) return;
  report(take(Date.now() + PAUSE));
  setTimeout(advance, 0);
}

onmessage = async ({ data: { id, name, given } }) => {
  try {
    if (name === "start") started = jobs.start(given);
    await started;
    postMessage({ id, result: name === "start" ? null : await jobs[name](given) });
  } catch (error) {
    postMessage({ id, error: String(error?.message ?? error) });
  }
};

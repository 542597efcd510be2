// A worker: one core, the pictures' numbers, and training. Messages are { id, name, given }; answers { id, result }.

import { Analysis } from "./analysis.js";
import { challenges } from "./challenges.js";
import { Core } from "./core.js";
import { Engine } from "./engine.js";
import { parseNoise } from "./noise.js";
import * as predictors from "./predictors.js";
import { halfStep, search, stochastic } from "./training.js";

let source = null; // of this script
let core = null;
let started = null;
let analysis = null;
let training = null;
let partner = null; // the worker that computes the other half of training steps

const PAUSE = 40; // milliseconds of training between two reports

const jobs = {
  async start({ script, wasm }) {
    source = script;
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
    const steps = options.optimiser === "quasi-newton" ? search(core, problem, options) : stochastic(core, problem, options, otherHalf(options));
    if (training) training.running = false;
    training = { steps, count: 0, seconds: 0, running: false, advancing: false, last: null, taken: Promise.resolve() };
  },
  async run({ running }) {
    if (!training) return;
    training.running = running;
    if (running && !training.advancing) advance(training);
    if (!running) await training.taken; // so that the last step has been reported
  },
  step() {
    if (training) take(training, 0);
  },
  half: ({ problem, omega, key }) => halfStep(core, { ...problem, noise: parseNoise(problem.noise) }, omega, key),
};

/**
 * A function that promises the second half of a training step, from a worker of its own once there is one. The numbers do not
 * depend on who computes them.
 */
function otherHalf({ d, n, noise }) {
  const problem = { d, n, noise };
  if (navigator.hardwareConcurrency > 1) partner ??= new Engine(source, core.module);
  let ask = async (given) => jobs.half(given);
  partner?.ready.then(() => (ask = (given) => partner.ask("half", given)));
  return (omega, key) => ask({ problem, omega, key });
}

/** Take training steps for some milliseconds, at least one, once those before have been taken; and report them. */
function take(mine, milliseconds) {
  mine.taken = mine.taken.then(async () => {
    const began = performance.now();
    const points = [];
    let done = false;
    do {
      const next = await mine.steps.next();
      if (next.done) {
        done = true;
        mine.running = false;
        if (next.value) points.push({ ...mine.last, omega: next.value });
        break;
      }
      mine.count += 1;
      mine.last = { step: mine.count, ...next.value };
      points.push(mine.last);
    } while (mine.running && performance.now() - began < milliseconds);
    mine.seconds += (performance.now() - began) / 1000;
    if (mine === training) report(mine, points, done);
  });
  return mine.taken;
}

function report({ count, seconds }, points, done) {
  const { omega } = points.at(-1) ?? { omega: null };
  const curve = points.map(({ step, loss, stage, depth, start, of }) => ({ step, loss, stage, depth, start, of }));
  postMessage({ report: { curve, omega, done, steps: count, seconds } });
}

async function advance(mine) {
  mine.advancing = true;
  while (mine.running) {
    await take(mine, PAUSE);
    await new Promise((resolve) => setTimeout(resolve, 0)); // lets messages in
  }
  mine.advancing = false;
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

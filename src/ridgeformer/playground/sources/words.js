// The words of the page, explained once, in a dialog that every view can open.

import { h, rich } from "./dom.js";

const WORDS = [
  ["Example, context, query", "An example is a pair (*x*, *y*): *d* features *x* and a label *y*. A context is *n* examples. The query is one more *x*, for which the model predicts *y*."],
  ["Task *w*", "Labels follow *y* = ⟨*w*, *x*⟩ + σ · noise. The task *w* is drawn anew for every context; nobody tells the model what it is."],
  ["Noise level σ", "The standard deviation of the noise in the labels. `uniform(0,5)` means that every context has its own σ between 0 and 5, and the model does not know it."],
  ["Parameters ω", "The numbers that training finds, four in each layer. ω_{xx} and ω_{xy} change the features of all tokens, ω_{yx} and ω_{yy} their labels. They stay the same for every context. GD++ has ω_{xx} and ω_{yx} only, Diag has all four."],
  ["Estimate *ŵ*", "What the model computes from a context. Its prediction is ⟨*ŵ*, *x*⟩. The estimate is new for every context; the parameters are not."],
  ["*S*, *b*, *q*", "All that a linear transformer sees of a context: *S* = Σ *x x*′, *b* = Σ *y x* and *q* = Σ *y*^{2}. The eigenvalues of *S* say how much the examples tell about each direction."],
  ["Unadjusted loss", "Half the mean squared error of the prediction; the answer to the query has no noise. Even the oracle has some."],
  ["Oracle", "Ridge regression that is told σ. No predictor is better at any noise level."],
  ["Adjusted loss", "The unadjusted loss minus that of the oracle: the cost of not knowing σ plus the cost of an imperfect algorithm."],
  ["Floor, Bayes predictor", "The Bayes predictor averages ridge regression over what the context says about σ. Its adjusted loss is the floor: on average over all noise levels nobody who is not told σ can be below it."],
  ["Ratio", "Adjusted loss / floor. 1 is the best that can exist."],
  ["Least squares, ridge", "Least squares fits the examples and nothing else. Ridge regression also keeps *ŵ* small: *ŵ* = (*S* + penalty · *I*)^{−1} *b*. The best penalty is σ^{2}."],
  ["Explosion", "A context with a loss above 100 *d*. Predicting 0 has a loss of about *d*/2."],
];

/** Show the dialog. */
export function showWords() {
  const dialog = h("dialog", { "aria-label": "words", class: "words", onclose: () => dialog.remove() },
    h("h2", {}, "Words"),
    h("dl", {}, WORDS.map(([word, text]) => [h("dt", {}, rich(word)), h("dd", {}, rich(text))])),
    h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
  dialog.scrollTop = 0;
}

// The parts of Observable Plot that pages draw with, built into one script that sets the global `Plot`. The playground and
// the report of the seed paper share it.

export { barY, cell, dot, line, link, plot, pointer, pointerX, rect, rectX, ruleX, ruleY, text, tip } from "@observablehq/plot";

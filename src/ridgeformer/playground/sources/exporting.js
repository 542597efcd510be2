// What leaves the page: the address, JSON, a model file that Python's `ridgeformer.load` reads, and Python code.

import { sha256 } from "./sha256.js";
import { active, toAddress } from "./state.js";

const pairs = (omega) => omega.map(([xx, xy, yx, yy]) => [[xx, xy], [yx, yy]]);
const parameters = ({ family }, omega) => (family === "gdpp" ? omega.map(([xx, , yx]) => [xx, yx]) : pairs(omega));
const heads = 2; // as Python counts them for omegas

export function asJSON(state) {
  const { d, n, noise, family } = state;
  const omega = parameters(state, active(state));
  const text = { format: "ridgeformer-playground", family, dim: d, context: n, noise, omega, address: `#${toAddress(state)}` };
  return JSON.stringify(text, null, 1);
}

/** Numbers as Python writes them in JSON: always with a point or an exponent where they are floats. */
export function asPython(state) {
  const { d, n, noise, family } = state;
  const name = family === "gdpp" ? "GDpp" : "Diag";
  const layers = parameters(state, active(state)).map((layer) => `    ${JSON.stringify(layer)},\n`);
  return (
    `from ridgeformer import ${name}, LinearTransformer, Problem, evaluate\n\n` +
    `omega = [  # of every layer: ${family === "gdpp" ? "xx, yx" : "[[xx, xy], [yx, yy]]"}\n${layers.join("")}]\n` +
    `model = LinearTransformer(${name}(omega=omega), dim=${d})\n` +
    `problem = Problem(dim=${d}, context=${n}, noise="${noise}")\n` +
    "print(evaluate(problem, model, sequences=16384))  # the loss that the page shows\n"
  );
}

/** A file in the format safetensors, with the header and the checksum that Python's `save` writes. */
export function asModelFile(state) {
  const { family, d } = state;
  const omega = parameters(state, active(state));
  const shape = family === "gdpp" ? [omega.length, 2] : [omega.length, 2, 2];
  const data = new Uint8Array(Float64Array.from(omega.flat(2)).buffer);
  const spec = `{"family": "${family}", "dim": ${d}, "layers": ${omega.length}, "heads": ${heads}}`;
  const metadata = { format: "ridgeformer-model", spec, version: "2" };
  const quoted = Object.entries(metadata).map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`);
  const text = new TextEncoder();
  const hashed = [
    text.encode(JSON.stringify([`{${quoted.join(", ")}}`])),
    text.encode(`["omega", "<f8", [${shape.join(", ")}]]`),
    data,
  ];
  const header = {
    __metadata__: { ...metadata, checksum: sha256(join(hashed)) },
    omega: { dtype: "F64", shape, data_offsets: [0, data.length] },
  };
  let bytes = text.encode(JSON.stringify(header));
  bytes = join([bytes, text.encode(" ".repeat((8 - (bytes.length % 8)) % 8))]);
  const size = new Uint8Array(8);
  new DataView(size.buffer).setBigUint64(0, BigInt(bytes.length), true);
  return join([size, bytes, data]);
}

function join(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Offer content as a file to save. */
export function download(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

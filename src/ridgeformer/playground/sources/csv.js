// A context from a small table: the columns of x, then y last. A first line of names is skipped.

import { LIMITS } from "./state.js";

/** Columns of x with the mean 0 and the variance 1, y with the mean 0 and the variance d: what models were trained for. */
function scaled(table) {
  const d = table[0].length - 1;
  const columns = table[0].map((_, c) => {
    const values = table.map((row) => row[c]);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length) || 1;
    return values.map((x) => ((x - mean) / spread) * (c === d ? Math.sqrt(d) : 1));
  });
  return table.map((_, t) => columns.map((column) => column[t]));
}

/** The context of a table; throws an Error that says what is wrong with it. */
export function readCSV(text, scale) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const split = (line) => line.split(/[,;\t]/).map((cell) => cell.trim());
  const isNumber = (cell) => cell !== "" && Number.isFinite(Number(cell));
  const rows = lines.map(split);
  if (rows.length && !rows[0].every(isNumber)) rows.shift();
  const columns = rows[0]?.length ?? 0;
  const [, most] = LIMITS.d;
  if (columns < 2 || columns > most + 1) throw new Error(`A table must have 1 to ${most} columns of x and one of y; this one has ${columns} columns.`);
  if (rows.length > LIMITS.n[1]) throw new Error(`A table may have ${LIMITS.n[1]} rows; this one has ${rows.length}.`);
  rows.forEach((row, i) => {
    if (row.length !== columns || !row.every(isNumber)) throw new Error(`Row ${i + 1} of the table must have ${columns} numbers.`);
  });
  const numbers = rows.map((row) => row.map(Number));
  const table = scale ? scaled(numbers) : numbers;
  return { x: table.map((row) => row.slice(0, -1)), y: table.map((row) => row.at(-1)), task: null };
}

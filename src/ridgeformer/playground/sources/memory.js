// What the browser remembers of the page: chapters that are solved, the best score. In a private window, or where a page
// from a file keeps nothing, it lasts as long as the page is open.

const PREFIX = "ridgeformer playground: ";
const here = new Map();

/** The value that was kept under a name, or undefined. */
export function recall(name) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? here.get(name) : JSON.parse(text);
  } catch {
    return here.get(name);
  }
}

/** Keep a value under a name. */
export function keep(name, value) {
  here.set(name, value);
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // kept in `here` only
  }
}

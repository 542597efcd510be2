// Small helpers for elements.

/** Make an element: h("button", { class: "main", onclick }, "Start"). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Plain text with a little mathematics: *w* is italic, _{..} and ^{..} are sub- and superscripts, `..` is code. */
export function rich(text) {
  const parts = text.split(/(\*[^*]+\*|_\{[^}]*\}|\^\{[^}]*\}|`[^`]+`)/);
  return parts.map((part) => {
    if (part.startsWith("*") && part.length > 2) return h("i", {}, part.slice(1, -1));
    if (part.startsWith("_{")) return h("sub", {}, part.slice(2, -1));
    if (part.startsWith("^{")) return h("sup", {}, part.slice(2, -1));
    if (part.startsWith("`") && part.length > 2) return h("code", {}, part.slice(1, -1));
    return part;
  });
}

/** A number for people: four digits, and powers of ten where it is very large or small. */
export function short(value, digits = 4) {
  if (value === Infinity || value >= 1e12) return "∞";
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-4)) {
    const exponent = Math.floor(Math.log10(Math.abs(value)));
    return `${(value / 10 ** exponent).toFixed(1).replace("-", "−")}·10${superscript(exponent)}`;
  }
  return Number(value.toPrecision(digits)).toString().replace("-", "−");
}

const superscript = (n) => [...String(n)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");

/** Say something to screen readers. */
export function say(text) {
  document.getElementById("live").textContent = text;
}

/** Call a function only when nothing has happened for a while. */
export function idle(milliseconds, action) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}

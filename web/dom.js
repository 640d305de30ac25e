// Nodes and the words in them. Everything is built from nodes and text, never from markup.

/** An element with attributes (`onclick` and the like are listeners) and children. */
export function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value ?? false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** 1.4 MB; exact below a kilobyte. */
export function bytes(count) {
  if (count < 1000) return `${count} B`;
  const step = Math.min(Math.floor(Math.log10(count) / 3), 4);
  const value = count / 1000 ** step;
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} ${["B", "kB", "MB", "GB", "TB"][step]}`;
}

const today = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const before = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A <time>, short for today; its tooltip has all of it. */
export function moment(seconds) {
  const when = new Date(seconds * 1000);
  const format = when.toDateString() === new Date().toDateString() ? today : before;
  return make("time", { datetime: when.toISOString(), title: when.toString() }, format.format(when));
}

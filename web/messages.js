// The newest messages of a subject, and their payloads.

import { byId, bytes, make, moment } from "./dom.js";
import { UploadError, callApi } from "./upload.js";

const SHOWN = 50;
const MOST_A_PAGE = 1000;
const SHOWN_AS_TEXT = 64 * 1024;
const HELD_IN_MEMORY = 256 * 1024 * 1024;
const LOOK_EVERY = 2000;

/** The list on the page: `open` shows a subject, and it stays up to date while the page is visible. */
export class Messages {
  #where = null;
  #latest = null;
  #seen = new Set();
  #busy = false;
  #refused = false;

  constructor() {
    byId("refresh").addEventListener("click", () => this.refresh());
    setInterval(() => document.visibilityState === "visible" && this.#look(), LOOK_EVERY);
  }

  async open(where) {
    this.#where = where;
    this.#latest = null;
    this.#seen.clear();
    byId("count").textContent = "";
    show(empty("Loading…"));
    await this.refresh();
  }

  async refresh() {
    const where = this.#where;
    byId("list").setAttribute("aria-busy", "true");
    try {
      const { latest, messages } = await newest(where);
      if (where !== this.#where) return; // another subject was opened meanwhile
      this.#latest = latest;
      this.#refused = false;
      this.#draw(messages);
    } catch (error) {
      if (where === this.#where) this.#fail(error);
    } finally {
      byId("list").setAttribute("aria-busy", "false");
    }
  }

  /** Cheap: only when the latest sequence has moved, or after an error, is the list read again. */
  async #look() {
    const where = this.#where;
    if (!where || this.#busy || this.#refused) return;
    this.#busy = true;
    try {
      const { latest_sequence: latest } = await read(where, `/v1/subjects/${where.subject}/latest`);
      if (where === this.#where && latest !== this.#latest) await this.refresh();
    } catch (error) {
      if (where === this.#where && this.#latest !== null) this.#fail(error);
    } finally {
      this.#busy = false;
    }
  }

  #fail(error) {
    this.#latest = null;
    this.#refused = !error.retryable;
    byId("count").textContent = "";
    show(make("p", { class: "notice bad", role: "alert" }, `Messages cannot be shown: ${error.message}`));
  }

  #draw(messages) {
    byId("count").textContent = messages.length < SHOWN ? "" : `the newest ${SHOWN}`;
    if (messages.length === 0) {
      show(empty("No messages yet", "Publish the first one above."));
      return;
    }
    const first = this.#seen.size === 0;
    const rows = messages.map((message) => {
      const isNew = !first && !this.#seen.has(message.sequence);
      this.#seen.add(message.sequence);
      return row(this.#where, message, isNew);
    });
    const titles = [["Sequence"], ["Time"], ["Size", "right"], ["Type"], ["Headers"], ["Payload", "right"]];
    const heads = titles.map(([text, style]) => make("th", { scope: "col", class: style }, text));
    show(make("table", { "aria-labelledby": "messages-title" },
      make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
  }
}

function show(node) {
  byId("list").replaceChildren(node);
}

function empty(title, text = "") {
  return make("p", { class: "empty" }, make("b", {}, title), text);
}

function read({ url, token }, path) {
  return callApi({ url, token, path });
}

/**
 * The newest messages, newest first. Sequences are global, so a subject's last ones may lie far apart: look at a
 * stretch before the end, then at longer ones before it. A stretch with more messages than a page is cut.
 */
export async function newest(where, count = SHOWN) {
  const { latest_sequence: latest } = await read(where, `/v1/subjects/${where.subject}/latest`);
  let messages = [];
  let end = BigInt(latest);
  let stretch = BigInt(count);
  while (messages.length < count && end > 0n) {
    const start = end > stretch ? end - stretch + 1n : 1n;
    const limit = stretch < MOST_A_PAGE ? stretch : MOST_A_PAGE;
    const page = await read(where, `/v1/subjects/${where.subject}/messages?start=${start}&limit=${limit}`);
    const found = page.messages.filter((message) => BigInt(message.sequence) <= end);
    if (found.length === MOST_A_PAGE && BigInt(page.next_sequence) <= end) {
      stretch /= 8n;
      continue;
    }
    messages = [...found, ...messages];
    end = start - 1n;
    stretch *= 8n;
  }
  return { latest, messages: messages.slice(-count).reverse() };
}

function row(where, message, isNew) {
  const chips = Object.entries(message.headers).map(([name, value]) =>
    make("span", { class: "chip" }, make("span", {}, `${name}: `), value));
  const actions = make("td", { class: "get" });
  const node = make("tr", { class: isNew ? "new" : null },
    make("th", { scope: "row", class: "number" }, String(message.sequence)),
    make("td", { class: "line" }, moment(message.create_at)),
    make("td", { class: "line right", title: `${message.size} bytes` }, bytes(message.size)),
    make("td", { class: "type dim" }, message.content_type),
    make("td", { class: "headers" }, ...chips), actions);
  if (isText(message)) actions.append(peekButton(where, message, node));
  actions.append(downloadLink(where, message));
  return node;
}

function isText({ content_type: type, size }) {
  return size <= SHOWN_AS_TEXT && /^text\/|json\b|xml\b|x-www-form-urlencoded/.test(type);
}

function peekButton(where, message, before) {
  let opened = null;
  const button = make("button", { type: "button", class: "link", "aria-expanded": "false", onclick: async () => {
    if (opened) {
      opened.remove();
      opened = null;
    } else {
      const text = make("pre", { tabindex: "0", "aria-label": `Payload of ${message.sequence}` }, "…");
      opened = make("tr", { class: "peek" }, make("td", { colspan: "6" }, text));
      before.after(opened);
      text.textContent = await payload(where, message).then((blob) => blob.text(), (error) => error.message);
    }
    button.setAttribute("aria-expanded", String(opened !== null));
    button.textContent = opened ? "Hide" : "Show";
  } }, "Show");
  return button;
}

/** A link for a whole object; a button for a message of a pack, whose URL needs its Range header. */
function downloadLink(where, message) {
  const whole = message.url && !message.range;
  const node = whole
    ? make("a", { href: message.url, rel: "noreferrer", target: "_blank" }, "Download")
    : make("button", { type: "button", class: "link" }, "Download");
  node.setAttribute("aria-label", `Download message ${message.sequence}`);
  node.addEventListener("click", async (event) => {
    if (whole && message.size > HELD_IN_MEMORY) return; // too much for memory: the browser's own way
    event.preventDefault();
    node.textContent = "Loading…";
    try {
      save(await payload(where, message), message.headers.filename ?? `${message.subject}-${message.sequence}`);
      node.textContent = "Download";
    } catch (error) {
      node.textContent = "Failed, again?";
      node.title = error.message;
    }
  });
  return node;
}

/** The payload as a Blob. Asks for a fresh URL: the one in the list may have expired. */
async function payload(where, { sequence }) {
  const message = await read(where, `/v1/messages/${sequence}`);
  const kind = { type: message.content_type };
  if (message.payload_missing) throw new UploadError("payload_missing", "the payload of this message was lost");
  if (message.url === undefined) return new Blob([], kind); // empty, in a pack: there is no byte to ask for
  const headers = message.range ? { Range: message.range } : {};
  const answer = await fetch(message.url, { headers, referrerPolicy: "no-referrer" });
  if (!answer.ok) throw new UploadError("payload_missing", `the object store answered with status ${answer.status}`);
  return new Blob([await answer.blob()], kind);
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// Files on their way: a line each with its progress, some at a time.

import { byId, bytes, make } from "./dom.js";
import { discardUpload, unfinishedUploads, uploadFile } from "./upload.js";

const FILES_AT_ONCE = 3;

export class Uploads {
  #where = null;
  #onPublished;
  #waiting = [];
  #running = 0;

  constructor(onPublished) {
    this.#onPublished = onPublished;
    const input = byId("files");
    input.addEventListener("change", () => {
      this.#add(input.files);
      input.value = ""; // so that the same file can be chosen again
    });
    this.#takeDrops();
    addEventListener("beforeunload", (event) => {
      if (this.#running) event.preventDefault();
    });
  }

  open(where) {
    this.#where = where;
    this.showUnfinished();
  }

  /** A page cannot keep a file over a reload, so it asks for it again. */
  showUnfinished() {
    const { url, subject } = this.#where;
    const here = unfinishedUploads().filter((entry) => entry.url === url && entry.subject === subject);
    const names = here.slice(0, 3).map(({ name, size }) => `${name} (${bytes(size)})`);
    if (here.length > names.length) names.push(`${here.length - names.length} more`);
    byId("unfinished").hidden = names.length === 0 || this.#running > 0;
    byId("unfinished").textContent =
      `Not finished: ${names.join(", ")}. Choose the same file again, and it goes on where it stopped.`;
  }

  #takeDrops() {
    const drop = byId("drop");
    for (const name of ["dragenter", "dragover"]) {
      addEventListener(name, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        drop.classList.add("over");
      });
    }
    addEventListener("dragleave", (event) => event.relatedTarget === null && drop.classList.remove("over"));
    addEventListener("drop", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      drop.classList.remove("over");
      if (this.#where) this.#add(event.dataTransfer.files);
    });
  }

  #add(files) {
    for (const file of files) {
      const line = new Line(file, { ...this.#where, headers: { ...typedHeaders(), filename: file.name } });
      line.onStart = () => this.#enqueue(line);
      line.onGone = () => this.showUnfinished();
      byId("uploads").prepend(line.node);
      this.#enqueue(line);
    }
  }

  #enqueue(line) {
    line.wait();
    this.#waiting.push(line);
    this.#next();
  }

  #next() {
    while (this.#running < FILES_AT_ONCE && this.#waiting.length) {
      const line = this.#waiting.shift();
      if (line.cancelled) continue;
      this.#running += 1;
      line.run().then((published) => {
        this.#running -= 1;
        this.#next();
        this.showUnfinished();
        if (published) this.#onPublished(line.options);
      });
    }
    this.showUnfinished();
  }
}

/** `name: value` lines as a map; what has no colon is a header without a value. */
function typedHeaders() {
  const lines = byId("headers").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const [name, ...value] = line.split(":");
    return [name.trim().toLowerCase(), value.join(":").trim()];
  }));
}

/** One upload as the page shows it. */
class Line {
  cancelled = false;
  onStart = null;
  onGone = null;
  #file;
  #stop;
  #bar;
  #state;
  #again;
  #cancel;

  constructor(file, options) {
    this.#file = file;
    this.options = options;
    this.#bar = make("progress", { max: "1", value: "0", "aria-label": `Progress of ${file.name}` });
    this.#state = make("p", { class: "state", role: "status" });
    const link = { type: "button", class: "link" };
    this.#again = make("button", { ...link, hidden: true, onclick: () => this.onStart() }, "Try again");
    this.#cancel = make("button", { ...link, onclick: () => this.cancel() }, "Cancel");
    this.#cancel.setAttribute("aria-label", `Cancel ${file.name}`);
    this.node = make("li", { class: "upload" },
      make("span", { class: "name", title: file.name }, file.name, make("small", {}, `  ${bytes(file.size)}`)),
      make("span", { class: "actions" }, this.#again, this.#cancel), this.#bar, this.#state);
  }

  wait() {
    this.#again.hidden = true;
    this.#say("Waiting…");
  }

  /** True when it became a message. Never throws: the line says what went wrong. */
  async run() {
    this.#stop = new AbortController();
    const onProgress = this.#progress();
    try {
      const receipt = await uploadFile(this.#file, { ...this.options, onProgress, signal: this.#stop.signal });
      this.#bar.hidden = this.#cancel.hidden = true;
      this.node.classList.add("done");
      this.#say(`Published to ${this.options.subject} as message ${receipt.sequence}`, "good");
      return true;
    } catch (error) {
      if (this.cancelled) await this.#discard();
      else {
        this.#say(error.message, "bad");
        this.#again.hidden = false;
      }
      return false;
    }
  }

  cancel() {
    this.cancelled = true;
    this.#stop?.abort();
    this.node.remove();
    if (!this.#again.hidden) this.#discard();
  }

  async #discard() {
    await discardUpload(this.#file, this.options).catch(() => {}); // it expires by itself
    this.onGone();
  }

  #progress() {
    const began = performance.now();
    let first = null;
    this.#say("Starting…");
    return (done, total) => {
      this.#bar.value = done / total;
      if (done === total) {
        this.#say("Waiting for the receipt…");
        return;
      }
      first ??= done; // what an earlier try brought is no measure of speed
      const rate = (done - first) / Math.max(0.2, (performance.now() - began) / 1000);
      const speed = rate > 0 ? `, ${bytes(Math.round(rate))}/s` : "";
      this.#say(`${Math.floor((100 * done) / total)} %, ${bytes(done)} of ${bytes(total)}${speed}`);
    };
  }

  #say(text, kind = "") {
    this.#state.className = `state ${kind}`;
    this.#state.textContent = text;
  }
}

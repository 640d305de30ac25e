// A resumable uploader for MiniToolStream: no dependencies, no build step.
//
//   import { uploadFile } from "https://mts.example/web/upload.js";
//
//   const receipt = await uploadFile(file, {
//     token, subject: "orders", headers: { filename: file.name },
//     onProgress: (done, total) => { bar.value = done / total; },
//   });
//   console.log(receipt.state, receipt.sequence);
//
// The payload goes straight into the object store: ticket, PUT (large files: parts, four at a time), receipt.
// An upload that stopped, by a reload or a lost network, goes on when the same file is given again.
// docs/browser.md has the options and what a page on another origin needs.

import { UploadError, callApi, pause, put, refused } from "./requests.js";

export { UploadError, callApi };

const PARTS_AT_ONCE = 4;
const SIGN_AT_ONCE = 32;
const TRIES = 6;
const TRIES_UNTIL_FIRST_ANSWER = 3; // a refusal by CORS looks like a lost network: say so soon
const SIGN_AGAIN = 3;
const LONGEST_PAUSE = 15_000;
const HASHED_UP_TO = 16 * 1024 * 1024;
const REMEMBERED_FOR = 8 * 86_400_000; // a ticket lives 7 days at most
const STORAGE_KEY = "mts-uploads";
const GONE = ["not_found", "upload_final", "payload_missing"];

/**
 * Publishes a file and resolves with its receipt: {state: "committed", sequence, partition, offset, upload_id}.
 *
 * - url: the host; by default the one this module was loaded from
 * - token, subject: where to, and with which bearer token
 * - headers: the message's headers, a map of strings
 * - onProgress(done, total): bytes in the store, those of an earlier try included
 * - signal: an AbortSignal. It stops the upload and keeps what is there; see `discardUpload`
 * - storage: where unfinished uploads are remembered: by default localStorage; null: nowhere
 */
export function uploadFile(file, options) {
  const upload = new Upload(file, options);
  return exclusively(upload.key, (alone) => upload.run(alone));
}

/** Gives up an upload that was stopped: the host forgets it and deletes its parts. */
export async function discardUpload(file, options) {
  await new Upload(file, options).discard();
}

/** Uploads that stopped before their end: [{subject, name, size, url, at}], newest first. */
export function unfinishedUploads(storage) {
  return Object.values(new Memory(storage).read()).sort((one, other) => other.at - one.at);
}

class Upload {
  #file;
  #subject;
  #token;
  #url;
  #headers;
  #onProgress;
  #signal;
  #memory;
  #answered = new Set();
  #done = 0;

  constructor(file, { url, token, subject, headers = {}, onProgress, signal, storage } = {}) {
    this.#file = file;
    this.#url = (url ?? new URL(import.meta.url).origin).replace(/\/+$/, "");
    this.#token = token;
    this.#subject = subject;
    this.#headers = headers;
    this.#onProgress = onProgress;
    this.#signal = signal;
    // Without a name and a time, nothing tells that a later Blob is the same one.
    this.#memory = new Memory(file.name && file.lastModified ? storage : null);
    this.key = JSON.stringify([this.#url, subject, file.name, file.size, file.lastModified, file.type, headers]);
  }

  async run(alone) {
    this.#signal?.throwIfAborted();
    if (!alone) this.#memory = new Memory(null);
    const receipt = (await this.#goOn()) ?? (await this.#start());
    this.#memory.forget(this.key);
    if (receipt.state !== "committed" && receipt.state !== "stored") {
      const reason = receipt.reason ? `: ${receipt.reason}` : "";
      const message = `the upload was ${receipt.state}${reason}`;
      throw new UploadError(`upload_${receipt.state}`, message, { details: receipt });
    }
    this.#add(this.#file.size - this.#done);
    return receipt;
  }

  async discard() {
    const remembered = this.#memory.read()[this.key];
    if (!remembered) return;
    await this.#giveUp(remembered.upload_id);
    this.#memory.forget(this.key);
  }

  // -- a new upload

  async #start(again = true) {
    const ticket = await this.#api("POST", `/v1/subjects/${encodeURIComponent(this.#subject)}/uploads`, {
      size: this.#file.size,
      content_type: this.#file.type || "application/octet-stream",
      headers: this.#headers,
      sha256: await sha256(this.#file),
    });
    this.#memory.remember(this.key, {
      upload_id: ticket.upload_id,
      multipart: Boolean(ticket.parts),
      subject: this.#subject,
      name: this.#file.name,
      size: this.#file.size,
      url: this.#url,
    });
    if (ticket.parts) return this.#inParts(ticket.upload_id, ticket.parts);
    const answer = await this.#put(ticket, this.#file, this.#signal);
    if (answer.status === 403 && again) {
      // Its only URL has expired.
      return (await this.#giveUp(ticket.upload_id)) ?? this.#start(false);
    }
    // 412: an earlier try arrived, only its answer was lost.
    if (!answer.ok && answer.status !== 412) throw refused(answer);
    return this.#settle(ticket.upload_id);
  }

  /** The receipt; where the store's event has not come yet, `complete` commits. */
  async #settle(id) {
    const receipt = await this.#api("GET", `/v1/uploads/${id}`);
    return receipt.state === "open" ? this.#api("POST", `/v1/uploads/${id}/complete`) : receipt;
  }

  // -- one that stopped earlier

  /** The receipt of the remembered upload, once it is whole; null when there is none to go on with. */
  async #goOn() {
    const remembered = this.#memory.read()[this.key];
    if (!remembered) return null;
    const id = remembered.upload_id;
    try {
      const receipt = await this.#api("GET", `/v1/uploads/${id}`);
      if (receipt.state === "committed" || receipt.state === "stored") return receipt;
      if (receipt.state === "open" && remembered.multipart) {
        const form = await this.#api("GET", `/v1/uploads/${id}/parts`);
        return await this.#inParts(id, { ...form, urls: [] });
      }
      if (receipt.state === "open") return await this.#api("POST", `/v1/uploads/${id}/complete`);
    } catch (error) {
      if (!GONE.includes(error.code) && error.code !== "upload_incomplete") throw error;
    }
    this.#add(-this.#done);
    return this.#giveUp(id);
  }

  /**
   * Aborts an upload, so that a late arrival does not become a second message.
   * The receipt if it was committed before; else null.
   */
  async #giveUp(id) {
    try {
      await this.#api("DELETE", `/v1/uploads/${id}`);
    } catch (error) {
      if (error.code === "upload_final") {
        const last = await this.#api("GET", `/v1/uploads/${id}`);
        return last.state === "committed" || last.state === "stored" ? last : null;
      }
      if (error.code !== "not_found") throw error;
    }
    return null;
  }

  // -- parts

  async #inParts(id, form) {
    for (let tries = 1; ; tries += 1) {
      await this.#sendMissing(id, form);
      try {
        return await this.#api("POST", `/v1/uploads/${id}/complete`);
      } catch (error) {
        if (error.code !== "upload_incomplete" || tries === SIGN_AGAIN) throw error;
      }
      form = { ...(await this.#api("GET", `/v1/uploads/${id}/parts`)), urls: [] };
    }
  }

  async #sendMissing(id, form) {
    const sizeOf = (number) => Math.min(form.part_size, this.#file.size - (number - 1) * form.part_size);
    const there = new Set();
    for (const { number, size } of form.arrived ?? []) if (size === sizeOf(number)) there.add(number);
    this.#add([...there].reduce((sum, number) => sum + sizeOf(number), 0) - this.#done);

    const missing = Array.from({ length: form.count }, (_, at) => at + 1).filter((number) => !there.has(number));
    const parts = this.#signed(id, missing, form.urls);
    const failed = new AbortController();
    const signal = this.#signal ? AbortSignal.any([this.#signal, failed.signal]) : failed.signal;
    const work = async () => {
      try {
        for await (const part of parts) await this.#putPart(id, part, (part.number - 1) * form.part_size, signal);
      } catch (error) {
        failed.abort(error); // the first failure stops the others, and is the one that counts
      }
    };
    await Promise.all(Array.from({ length: PARTS_AT_ONCE }, work));
    failed.signal.throwIfAborted();
  }

  /** Part URLs in order: those of the ticket, then signed a few at a time, which also prolongs the ticket. */
  async *#signed(id, numbers, urls) {
    yield* urls;
    for (let at = urls.length; at < numbers.length; at += SIGN_AT_ONCE) {
      yield* await this.#sign(id, numbers.slice(at, at + SIGN_AT_ONCE));
    }
  }

  async #sign(id, numbers) {
    const parts = numbers.map((number) => ({ number }));
    return (await this.#api("POST", `/v1/uploads/${id}/parts`, { parts })).urls;
  }

  async #putPart(id, part, from, signal) {
    const body = this.#file.slice(from, from + part.size);
    for (let tries = 1; ; tries += 1) {
      const answer = await this.#put(part, body, signal);
      if (answer.ok) return;
      if (answer.status !== 403 || tries === SIGN_AGAIN) throw refused(answer);
      [part] = await this.#sign(id, [part.number]); // the URL has expired
    }
  }

  // -- requests

  #api(method, path, body) {
    const call = { url: this.#url, token: this.#token, method, path, body, signal: this.#signal };
    return this.#retrying("api", this.#signal, () => callApi(call));
  }

  /** The store's answer to a PUT, whatever it says, unless it is worth another try. */
  #put({ url, headers = {} }, body, signal) {
    return this.#retrying("store", signal, async () => {
      let counted = 0;
      const count = (bytes) => {
        this.#add(bytes - counted);
        counted = bytes;
      };
      try {
        const answer = await put(url, headers, body, count, signal);
        if (answer.status === 429 || answer.status >= 500) throw refused(answer, true);
        count(answer.ok ? body.size : 0);
        return answer;
      } catch (error) {
        count(0);
        if (error.code === "unavailable" && !error.status) await checkReadable(this.#file);
        throw error;
      }
    });
  }

  async #retrying(server, signal, attempt) {
    for (let tries = 1; ; tries += 1) {
      try {
        const answer = await attempt();
        this.#answered.add(server);
        return answer;
      } catch (error) {
        signal?.throwIfAborted();
        if (error.status) this.#answered.add(server);
        const most = this.#answered.has(server) ? TRIES : TRIES_UNTIL_FIRST_ANSWER;
        if (!error.retryable || tries >= most) throw error;
        const longest = Math.min(LONGEST_PAUSE, 500 * 2 ** tries);
        await pause(error.retryAfter + longest * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  #add(bytes) {
    this.#done += bytes;
    if (bytes) this.#onProgress?.(this.#done, this.#file.size);
  }
}

/** Unfinished uploads by their key, as one item of a Storage. What cannot be remembered is only a lost comfort. */
class Memory {
  #storage;

  constructor(storage) {
    try {
      this.#storage = storage === undefined ? globalThis.localStorage : storage;
    } catch {
      this.#storage = null; // storage is switched off for this page
    }
  }

  read() {
    try {
      const all = JSON.parse(this.#storage?.getItem(STORAGE_KEY) ?? "{}");
      const young = Object.entries(all).filter(([, entry]) => entry.at > Date.now() - REMEMBERED_FOR);
      return Object.fromEntries(young);
    } catch {
      return {};
    }
  }

  remember(key, entry) {
    this.#write({ ...this.read(), [key]: { ...entry, at: Date.now() } });
  }

  forget(key) {
    const { [key]: _, ...rest } = this.read();
    this.#write(rest);
  }

  #write(entries) {
    try {
      this.#storage?.setItem(STORAGE_KEY, JSON.stringify(entries));
    } catch {
      // full
    }
  }
}

const running = new Set();

/** Two uploads of one file at the same time, also in two tabs, are two messages: only the first is remembered. */
async function exclusively(key, work) {
  if (navigator.locks) return navigator.locks.request(`mts-upload ${key}`, { ifAvailable: true }, work);
  if (running.has(key)) return work(false);
  running.add(key);
  return work(true).finally(() => running.delete(key));
}

/** A file that changed or vanished looks like a lost network to a request; reading a byte of it tells. */
async function checkReadable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new UploadError("file_changed", `${file.name ?? "the file"} changed or went away meanwhile; choose it again`);
  }
}

/** Hex, for the store to check; only small files, since the browser can hash only what is in memory. */
async function sha256(file) {
  if (file.size > HASHED_UP_TO || !globalThis.crypto?.subtle) return undefined;
  await checkReadable(file);
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

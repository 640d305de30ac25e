// What the uploader and the page send: calls of the API, PUTs into the object store, and what their failures mean.

const SILENCE = 90_000; // the store itself waits up to 60 s for the event's answer

/** What went wrong: `message` for people, `code` for programs, `retryable` when trying again later makes sense. */
export class UploadError extends Error {
  constructor(code, message, { status = 0, details = {}, retryable = false, retryAfter = 0 } = {}) {
    super(message);
    this.name = "UploadError";
    Object.assign(this, { code, status, details, retryable, retryAfter });
  }
}

/** One call of the API: its answer, or an UploadError with the API's own message. */
export async function callApi({ url, token, method = "GET", path, body, signal }) {
  const headers = headersOf(token, body);
  let response;
  let text;
  try {
    response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body), signal });
    text = await response.text();
  } catch {
    signal?.throwIfAborted();
    throw unreachable("the API", url, "server.cors_origins");
  }
  const answer = parsed(text);
  if (response.ok && answer) return answer;
  const { code = "unavailable", message, details } = answer?.error ?? {};
  throw new UploadError(code, message ?? `${url} answered with status ${response.status}, and not as the API does`, {
    status: response.status,
    details,
    retryable: response.status === 429 || response.status >= 502,
    retryAfter: 1000 * Number(response.headers.get("retry-after") ?? 0),
  });
}

function headersOf(token, body) {
  try {
    const headers = new Headers({ Authorization: `Bearer ${token}` });
    if (body) headers.set("Content-Type", "application/json");
    return headers;
  } catch {
    throw new UploadError("unauthorized", "this is not a token: it has characters that no token has");
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A PUT and its answer {ok, status, text}. By XMLHttpRequest: fetch does not tell how much has gone out. */
export function put(url, headers, body, onSent, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const request = new XMLHttpRequest();
    let silence;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => request.abort(), SILENCE);
    };
    const stop = () => request.abort();
    request.upload.onprogress = (event) => {
      listen();
      onSent(event.loaded);
    };
    request.onload = () => {
      const { status, responseText: text } = request;
      resolve({ ok: status >= 200 && status < 300, status, text });
    };
    request.onerror = () => reject(unreachable("the object store", new URL(url).origin, "minio.cors_origins"));
    request.onabort = () => reject(signal?.reason ?? silent());
    request.onloadend = () => {
      clearTimeout(silence);
      signal?.removeEventListener("abort", stop);
    };
    signal?.addEventListener("abort", stop, { once: true });
    request.open("PUT", url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    listen();
    request.send(body);
  });
}

function silent() {
  return new UploadError("unavailable", "the object store fell silent", { retryable: true });
}

/** The browser does not say why a request got no answer, so the message names both reasons. */
function unreachable(what, url, setting) {
  const message = `cannot reach ${what} at ${url}: it is down, or ${setting} does not list ${globalThis.origin}`;
  return new UploadError("unavailable", message, { retryable: true });
}

/** The store's answer as an error. */
export function refused({ status, text }, retryable = false) {
  const say = (tag) => new RegExp(`<${tag}>([^<]{1,500})</${tag}>`).exec(text)?.[1];
  const code = retryable ? "unavailable" : { 403: "forbidden", 404: "payload_missing" }[status] ?? "bad_request";
  const message = `the object store refused the upload: ${say("Message") ?? `status ${status}`}`;
  return new UploadError(code, message, { status, details: { store_code: say("Code") }, retryable });
}

/** Waits, unless `signal` says to stop. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
